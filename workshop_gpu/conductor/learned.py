"""What was measured on this machine, in a form that the shell can keep across restarts."""

import msgspec

from workshop_gpu.conductor.events import PartBytes
from workshop_gpu.conductor.rungs import RoleBytes


class Weighed(msgspec.Struct, frozen=True):
    """A model's weights on a device as they were measured. `file_bytes` are those of the files
    at that time: after a change of the files the measurement says nothing. `lacks`: what of
    "tiled" and "sliced" it cannot do; `encoders`: the parts that encode text."""

    bytes: int
    file_bytes: int = 0
    parts: tuple[PartBytes, ...] = ()
    roles: tuple[RoleBytes, ...] = ()
    lacks: tuple[str, ...] = ()
    encoders: tuple[PartBytes, ...] = ()


class Learned(msgspec.Struct, frozen=True):
    """Everything that `Estimates` has learned; encode and decode it with msgspec.

    `peaks`: working bytes by "placement/denoiser" and units (pixels × batch). `steps_s`: seconds
    a step by model, jobs drawn together, and pixels; `placed_s` the same for a model that was not
    resident, by "placement/steps/model"; `compiled_s` the same for all that drew with compiled
    blocks. `once_s`: what a picture takes besides its steps, by the same names, those of compiled
    blocks after "compiled/". `bus_bytes_per_s`: the fastest load that was seen.
    """

    weights: dict[str, Weighed] = {}
    peaks: dict[str, dict[int, int]] = {}
    loads_s: dict[str, float] = {}
    load_s_per_byte: float | None = None
    steps_s: dict[str, dict[int, dict[int, float]]] = {}
    placed_s: dict[str, dict[int, dict[int, float]]] = {}
    bus_bytes_per_s: float = 0.0
    compiled_s: dict[str, dict[int, dict[int, float]]] = {}
    once_s: dict[str, dict[int, dict[int, float]]] = {}

    def with_news(self, news: "Learned") -> "Learned":
        """This with what another measurement has found, which counts where both know."""
        return Learned(
            {**self.weights, **news.weights},
            {key: {**self.peaks.get(key, {}), **found} for key, found in news.peaks.items()}
            | {key: kept for key, kept in self.peaks.items() if key not in news.peaks},
            {**self.loads_s, **news.loads_s},
            news.load_s_per_byte or self.load_s_per_byte,
            {**self.steps_s, **news.steps_s},
            {**self.placed_s, **news.placed_s},
            max(self.bus_bytes_per_s, news.bus_bytes_per_s),
            {**self.compiled_s, **news.compiled_s},
            {**self.once_s, **news.once_s},
        )
