"""How many bytes, how many seconds: guesses before, measurements after.

Weights: explicit in the catalogue → measured on this machine → size of the files → the name.
Working memory: measured peaks of the model → a formula. Seconds: learned only.
"""

import re

from workshop_gpu.conductor.events import ModelFacts

_MEGAPIXEL = 1_000_000
_GB = 1_000_000_000

# bf16 weights of whole pipelines; used only where not even the files' size is known.
_FAMILIES: tuple[tuple[str, int], ...] = (
    ("qwen-image", 57 * _GB),
    ("flux", 34 * _GB),
    ("sd3.5-large", 28 * _GB),
    ("sd3", 16 * _GB),
    ("z-image", 21 * _GB),
    ("wan", 30 * _GB),
    ("sdxl", 7 * _GB),
    ("xl", 7 * _GB),
    ("stable-diffusion", 3 * _GB),
)
_UNKNOWN_MODEL_BYTES = 6 * _GB

# The formula: 1.5 GB for each megapixel was measured for pipelines of 4 GB and more
# (SD3.5-Large at 1024 x 1024: peak 28.5 GiB over 27.6 GB of weights, decoding included);
# activations of smaller models shrink with their width, hence with their weights.
_BYTES_PER_PIXEL = 1500
_SAFETY = 1.15
_FULL_SIZE_BYTES = 4 * _GB
_BASE_MAX_BYTES = _GB // 2

# A peak measured at the same size or a larger one is trusted with little on top; one that is
# carried over to a larger picture less, because attention may grow faster than the picture.
_SAME_SIZE_SAFETY = 1.1
_LARGER_SIZE_SAFETY = 1.25

_CONTRADICTION = 0.1

# Before anything was measured: seconds a step and megapixel, seconds a byte (an SSD's 1.5 GB/s).
_GUESSED_STEP_S = 0.2
_GUESSED_LOAD_S_PER_BYTE = 1 / 1.5e9


def contradicts(measured: int, estimated: int) -> bool:
    """Whether a measurement is more than 10 % away from its estimate."""
    return abs(measured - estimated) > _CONTRADICTION * max(estimated, 1)


def bytes_by_name(model: str) -> int:
    """The last resort: a number of parameters in the name ("7b", two bytes each), or a family."""
    name = model.lower()
    billions = re.search(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])", name)
    if billions:
        return int(float(billions[1]) * 2 * _GB)
    return next((size for family, size in _FAMILIES if family in name), _UNKNOWN_MODEL_BYTES)


def working_by_formula(weights_bytes: int, pixels: int, batch: int) -> int:
    """Working memory of a model that never ran: grows with the picture and, up to 4 GB of
    weights, with the model. 40 MB at 128 × 128: about 10 MB; 28 GB at 1024 × 1024: 2.3 GB."""
    scale = min(1.0, weights_bytes / _FULL_SIZE_BYTES)
    activations = int(_BYTES_PER_PIXEL * pixels * batch * _SAFETY * scale)
    return activations + min(_BASE_MAX_BYTES, weights_bytes // 4)


class Estimates:
    """What was learned on this machine, and the guesses where nothing was."""

    def __init__(self) -> None:
        self._weights: dict[str, int] = {}
        self._peaks: dict[str, dict[int, int]] = {}
        self._loads_s: dict[str, float] = {}
        self._load_s_per_byte: float | None = None
        self._steps_s: dict[str, dict[int, float]] = {}

    # bytes

    def weights_bytes(self, facts: ModelFacts) -> int:
        """Bytes of a model's weights on a device. An explicit figure that a measurement
        exceeded is no longer believed."""
        measured = self._weights.get(facts.model, 0)
        if facts.explicit_bytes:
            return max(facts.explicit_bytes, measured)
        return measured or facts.file_bytes or bytes_by_name(facts.model)

    def learn_weights(self, model: str, measured_bytes: int) -> None:
        if measured_bytes > 0:
            self._weights[model] = measured_bytes

    def working_bytes(self, model: str, weights_bytes: int, pixels: int, batch: int) -> int:
        """Bytes that a job needs beside the weights."""
        peaks = self._peaks.get(model)
        if not peaks:
            return working_by_formula(weights_bytes, pixels, batch)
        units = pixels * batch
        as_large = [size for size in peaks if size >= units]
        if as_large:
            return int(peaks[min(as_large)] * _SAME_SIZE_SAFETY)
        nearest = max(peaks)
        return int(peaks[nearest] / nearest * units * _LARGER_SIZE_SAFETY)

    def learn_working(self, model: str, pixels: int, batch: int, peak_bytes: int) -> bool:
        """Notes a measured peak; says whether this size was measured for the first time."""
        if peak_bytes <= 0 or pixels * batch <= 0:
            return False
        peaks = self._peaks.setdefault(model, {})
        first = pixels * batch not in peaks
        peaks[pixels * batch] = max(peak_bytes, peaks.get(pixels * batch, 0))
        return first

    # seconds

    def load_s(self, model: str, weights_bytes: int) -> float | None:
        """Seconds that a load takes; None while no load was ever seen."""
        if model in self._loads_s:
            return self._loads_s[model]
        if self._load_s_per_byte is None:
            return None
        return self._load_s_per_byte * weights_bytes

    def load_guess_s(self, model: str, weights_bytes: int) -> float:
        """As `load_s`, with a guess where nothing is known."""
        known = self.load_s(model, weights_bytes)
        return weights_bytes * _GUESSED_LOAD_S_PER_BYTE if known is None else known

    def learn_load(self, model: str, weights_bytes: int, seconds_s: float) -> None:
        if seconds_s > 0:
            self._loads_s[model] = _smoothed(self._loads_s.get(model), seconds_s)
            if weights_bytes > 0:
                rate = seconds_s / weights_bytes
                self._load_s_per_byte = _smoothed(self._load_s_per_byte, rate)

    def run_s(self, model: str, pixels: int, steps: int) -> float | None:
        """Seconds that a job runs; None while the model never ran. Another size than those
        measured is scaled from the nearest by its pixels."""
        known = self._steps_s.get(model)
        if not known:
            return None
        if pixels in known:
            return known[pixels] * steps
        nearest = min(known, key=lambda size: (abs(size - pixels), size))
        return known[nearest] * pixels / nearest * steps

    def run_guess_s(self, model: str, pixels: int, steps: int) -> float:
        """As `run_s`, with a guess where nothing is known."""
        known = self.run_s(model, pixels, steps)
        return steps * pixels / _MEGAPIXEL * _GUESSED_STEP_S if known is None else known

    def learn_run(self, model: str, pixels: int, steps: int, seconds_s: float) -> None:
        if seconds_s > 0 and steps > 0 and pixels > 0:
            known = self._steps_s.setdefault(model, {})
            known[pixels] = _smoothed(known.get(pixels), seconds_s / steps)


def _smoothed(before: float | None, measured: float) -> float:
    """Half old, half new: follows a change within a few runs, and is not thrown by one."""
    return measured if before is None else (before + measured) / 2
