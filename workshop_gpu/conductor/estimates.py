"""How many bytes, how many seconds: guesses before, measurements after.

Weights: explicit in the catalogue → measured on this machine → size of the files → the name.
Working memory: see `working_memory.py`. Seconds: learned only.
"""

import re

from workshop_gpu.conductor.events import ModelFacts, PartBytes
from workshop_gpu.conductor.learned import Learned, Weighed
from workshop_gpu.conductor.rungs import RESIDENT, RoleBytes
from workshop_gpu.conductor.step_times import Pace, StepTimes, smoothed
from workshop_gpu.conductor.working_memory import Activations, Peaks, by_formula

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

_CONTRADICTION = 0.1

_AS_A_WHOLE = RESIDENT.name
_COMPILED = "compiled"

# Before anything was measured: seconds a step and megapixel, seconds a byte (an SSD's 1.5 GB/s).
_GUESSED_STEP_S = 0.2
_GUESSED_LOAD_S_PER_BYTE = 1 / 1.5e9
# A job that took less than so many times what its weights' ways take computed in their shadow.
_HELD_UP = 1.25
# PCIe 3.0 x16, as long as nothing was measured.
_GUESSED_BUS_BYTES_PER_S = 12e9


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


class Estimates:
    """What was learned on this machine, and the guesses where nothing was.

    `learned` is what an earlier life of the server has measured here.
    """

    def __init__(self, learned: Learned | None = None) -> None:
        kept = learned or Learned()
        self._weights = {name: each for name, each in kept.weights.items() if each.bytes > 0}
        self._peaks = {key: Peaks(sizes) for key, sizes in kept.peaks.items()}
        self._loads_s = {name: each_s for name, each_s in kept.loads_s.items() if each_s > 0}
        self._load_s_per_byte = kept.load_s_per_byte
        self._steps = StepTimes(kept.steps_s)
        self._placed = StepTimes(kept.placed_s)
        self._compiled = StepTimes(kept.compiled_s)
        self._once = StepTimes(kept.once_s)
        self._drew_compiled = {name.rsplit("/", 1)[-1] for name in kept.compiled_s}
        self._bus_bytes_per_s = max(0.0, kept.bus_bytes_per_s)
        self._denoisers: dict[str, str] = {}
        self._held_up: set[str] = set()
        """Models that waited for their weights when they drew last."""

    def learned(self) -> Learned:
        """All of it, to be kept."""
        return Learned(
            weights=dict(self._weights),
            peaks={key: peaks.measured for key, peaks in self._peaks.items() if peaks},
            loads_s=dict(self._loads_s),
            load_s_per_byte=self._load_s_per_byte,
            steps_s=self._steps.learned(),
            placed_s=self._placed.learned(),
            bus_bytes_per_s=self._bus_bytes_per_s,
            compiled_s=self._compiled.learned(),
            once_s=self._once.learned(),
        )

    def know(self, facts: ModelFacts) -> None:
        """The catalogue says which denoiser the model has."""
        self._denoisers[facts.model] = facts.denoiser or facts.model

    # bytes of weights

    def weights_bytes(self, facts: ModelFacts) -> int:
        """Bytes of a model's weights on a device: measured; until then as somebody said, else as
        large as its files, else by its name."""
        if weighed := self._weighed(facts):
            return weighed.bytes
        return facts.explicit_bytes or facts.file_bytes or bytes_by_name(facts.model)

    def parts(self, facts: ModelFacts) -> tuple[PartBytes, ...]:
        """The components that the model had when it was loaded last; () where unknown."""
        weighed = self._weighed(facts)
        return weighed.parts if weighed else ()

    def encoders(self, facts: ModelFacts) -> tuple[PartBytes, ...]:
        """Those components that encode text; () where unknown."""
        weighed = self._weighed(facts)
        return weighed.encoders if weighed else ()

    def roles(self, facts: ModelFacts) -> tuple[RoleBytes, ...]:
        """What the model's roles take: measured, else by its files; () where nobody knows."""
        weighed = self._weighed(facts)
        return (weighed.roles if weighed else ()) or facts.roles

    def was_weighed(self, facts: ModelFacts) -> bool:
        """Whether the model, with these files, was ever loaded here."""
        return self._weighed(facts) is not None

    def lacks(self, facts: ModelFacts) -> tuple[str, ...]:
        """What of "tiled" and "sliced" the model cannot do: seen, or by its classes."""
        weighed = self._weighed(facts)
        return tuple(sorted({*facts.lacks, *(weighed.lacks if weighed else ())}))

    def learn_weights(
        self,
        model: str,
        measured_bytes: int,
        file_bytes: int = 0,
        parts: tuple[PartBytes, ...] = (),
        roles: tuple[RoleBytes, ...] = (),
        lacks: tuple[str, ...] = (),
        encoders: tuple[PartBytes, ...] = (),
    ) -> None:
        """What all of the model's weights take, by which of its parts, and for what; and what it
        cannot do."""
        if measured_bytes > 0:
            weighed = Weighed(measured_bytes, file_bytes, parts, roles, lacks, encoders)
            self._weights[model] = weighed

    def _weighed(self, facts: ModelFacts) -> Weighed | None:
        weighed = self._weights.get(facts.model)
        if weighed is None:
            return None
        changed = weighed.file_bytes and facts.file_bytes not in (0, weighed.file_bytes)
        return None if changed else weighed

    # bytes beside the weights

    def working_bytes(
        self, model: str, weights_bytes: int, pixels: int, batch: int, placement: str = _AS_A_WHOLE
    ) -> int:
        """Bytes that a job needs beside the weights."""
        peaks = self._peaks.get(self._key(model, placement))
        if peaks:
            return peaks.bytes_for(pixels * batch)
        return by_formula(weights_bytes, pixels * batch)

    def learn_working(
        self, model: str, pixels: int, batch: int, peak_bytes: int, placement: str = _AS_A_WHOLE
    ) -> bool:
        """Notes a measured peak; says whether it is the first of this size, or the largest."""
        if peak_bytes <= 0 or pixels * batch <= 0:
            return False
        peaks = self._peaks.setdefault(self._key(model, placement), Peaks())
        return peaks.learn(pixels * batch, peak_bytes)

    def activations(self, model: str, weights_bytes: int, pixels: int, batch: int) -> Activations:
        """What a job's computation needs, by phase and for all kinds of placements."""
        units, denoiser = pixels * batch, f"/{self._denoisers.get(model, model)}"
        by_kind = tuple(
            (key.removesuffix(denoiser), peaks.bytes_for(units))
            for key, peaks in self._peaks.items()
            if peaks and key.endswith(denoiser)
        )
        plain_bytes = self.working_bytes(model, weights_bytes, pixels, batch)
        return Activations(plain_bytes, units, by_kind)

    def _key(self, model: str, placement: str) -> str:
        return f"{placement}/{self._denoisers.get(model, model)}"

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
            self._loads_s[model] = smoothed(self._loads_s.get(model), seconds_s)
            if weights_bytes > 0:
                rate = seconds_s / weights_bytes
                self._load_s_per_byte = smoothed(self._load_s_per_byte, rate)

    def run_s(
        self,
        model: str,
        pixels: int,
        steps: int,
        batch: int = 1,
        placement: str = _AS_A_WHOLE,
        compiled: bool = False,
        images: int = 1,
    ) -> float | None:
        """Seconds that so many jobs run together, `steps` being those of all `images` of one of
        them; None while the model never ran so many."""
        pace = self.pace(model, pixels, batch, placement, compiled)
        return None if pace is None else pace.run_s(steps, images)

    def pace(
        self,
        model: str,
        pixels: int,
        batch: int = 1,
        placement: str = _AS_A_WHOLE,
        compiled: bool = False,
    ) -> Pace | None:
        """Another size than those measured is scaled from the nearest by its pixels. A placement
        in which it never ran is taken to be as fast as any, or as is guessed where it only ever
        waited for its weights. With `compiled` blocks it is taken to be no slower than without."""
        if not compiled:
            return self._plain_pace(model, pixels, batch, placement)
        pace = self._least(self._compiled, model, pixels, batch, f"{placement}/")
        if pace is not None:
            return pace
        found = (
            self._least(self._compiled, model, pixels, batch),
            self._plain_pace(model, pixels, batch, placement),
        )
        return min((pace for pace in found if pace is not None), default=None)

    def _plain_pace(self, model: str, pixels: int, batch: int, placement: str) -> Pace | None:
        pace = None
        if placement != _AS_A_WHOLE:
            pace = self._least(self._placed, model, pixels, batch, f"{placement}/")
        if pace is None:
            step_s = self._steps.step_s(model, pixels, batch)
            if step_s is not None:
                return Pace(step_s, self._once.step_s(model, pixels, batch) or 0.0)
            pace = self._least(self._placed, model, pixels, batch)
            if pace is not None and model in self._held_up:
                guess_s = pixels * batch / _MEGAPIXEL * _GUESSED_STEP_S
                pace = pace._replace(step_s=min(pace.step_s, guess_s))
        return pace

    def _least(
        self, times: StepTimes, model: str, pixels: int, batch: int, beginning: str = ""
    ) -> Pace | None:
        """The fastest of what was measured in any placement, or in those of this beginning."""
        found = times.least(f"/{model}", pixels, batch, beginning)
        if found is None:
            return None
        step_s, name = found
        once_s = self._once.step_s(self._once_name(name, times is self._compiled), pixels, batch)
        return Pace(step_s, once_s or 0.0)

    def _once_name(self, name: str, compiled: bool) -> str:
        return f"{_COMPILED}/{name}" if compiled else name

    def once_s(self, model: str, pixels: int, batch: int) -> float:
        """What a picture takes besides its steps with all of the model on its device, or where it
        took least; 0 where that is not known."""
        known_s = self._once.step_s(model, pixels, batch)
        if known_s is not None:
            return known_s
        found = self._once.least(f"/{model}", pixels, batch)
        return 0.0 if found is None else found[0]

    def step_is_measured(self, model: str, pixels: int, batch: int, compiled: bool = False) -> bool:
        """Whether so many pictures were drawn together with all of the model on its device."""
        if compiled:
            whole = f"{_AS_A_WHOLE}/"
            return self._compiled.least(f"/{model}", pixels, batch, whole) is not None
        return self._steps.step_s(model, pixels, batch) is not None

    def drew_compiled(self, model: str) -> bool:
        """Whether the model was ever drawn with compiled blocks on this machine."""
        return model in self._drew_compiled

    def run_guess_s(self, model: str, pixels: int, steps: int) -> float:
        """As `run_s` for one job, with a guess where nothing is known."""
        known = self.run_s(model, pixels, steps)
        return steps * pixels / _MEGAPIXEL * _GUESSED_STEP_S if known is None else known

    def measured_run_s(
        self,
        model: str,
        pixels: int,
        steps: int,
        batch: int,
        compiled: bool = False,
        images: int = 1,
    ) -> dict[str, float]:
        """By placement, what jobs of this very size and so many steps have taken: there the
        weights' ways are in the steps, or come besides."""
        times = self._compiled if compiled else self._placed
        placed = times.measured(f"/{steps}/{model}", pixels, batch)
        found: dict[str, float] = {}
        for placement, step_s in placed.items():
            name = self._once_name(f"{placement}/{steps}/{model}", compiled)
            once_s = self._once.step_s(name, pixels, batch) or 0.0
            found[placement] = Pace(step_s, once_s).run_s(steps, images)
        return found

    def learn_run(
        self,
        model: str,
        pixels: int,
        steps: int,
        seconds_s: float,
        batch: int = 1,
        placement: str = _AS_A_WHOLE,
        moving_s: float = 0.0,
        compiled: bool = False,
        steps_s: float = 0.0,
        images: int = 1,
        *,
        encoded: bool = True,
    ) -> None:
        """What so many jobs took together, `steps` being those of all images of one of them.
        `steps_s` of it their steps took (0: not measured). `moving_s` of it the weights' ways alone
        should have taken: where that is nearly all, the job says little of how long computing
        takes. Not all `encoded`: what comes besides the steps is another time more."""
        if seconds_s <= 0 or steps <= 0 or pixels <= 0:
            return
        whole = placement == _AS_A_WHOLE and not compiled
        name = model if whole else f"{placement}/{steps}/{model}"
        once_name = self._once_name(name, compiled)
        measured = 0 < steps_s < seconds_s
        if not measured:  # as of one step alone; what comes besides is as it was, if anybody knows
            known_s = (self._once.step_s(once_name, pixels, batch) or 0.0) * images
            steps_s = seconds_s - known_s if known_s < seconds_s else seconds_s
        step_s = steps_s / steps
        if compiled:
            self._compiled.learn(name, pixels, batch, step_s)
            self._drew_compiled.add(model)
        elif whole:
            self._steps.learn(name, pixels, batch, step_s)
        else:
            if seconds_s < moving_s * _HELD_UP:
                self._held_up.add(model)
            else:
                self._held_up.discard(model)
            self._placed.learn(name, pixels, batch, step_s)
        if measured and encoded:
            self._once.learn(once_name, pixels, batch, (seconds_s - steps_s) / max(1, images))

    def bus_bytes_per_s(self) -> float:
        """How fast weights come to a device: the fastest load that was seen, else a guess."""
        return self._bus_bytes_per_s or _GUESSED_BUS_BYTES_PER_S

    @property
    def bus_is_measured(self) -> bool:
        """Whether any load, or the bus itself, was ever measured here."""
        return self._bus_bytes_per_s > 0

    def learn_bus(self, bytes_per_s: float) -> None:
        """A load, or a measurement of the bus itself, went so fast."""
        self._bus_bytes_per_s = max(self._bus_bytes_per_s, bytes_per_s)
