"""One entry of the catalogue: what it is, where it lies, its defaults and limits."""

import msgspec

from workshop_gpu.conductor.combining import STAYS, name_of
from workshop_gpu.conductor.ladder import AUTO, rung_named, streams_nothing
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, VAE


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request gets that does not say otherwise. Sizes are pixels; 0: the model's own, which
    the catalogue finds out (see `sizes.py`)."""

    steps: int = 30
    guidance: float = 5.0
    width: int = 0
    height: int = 0


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request may ask for at most. Width and height are multiples of `size_multiple`.

    `max_pixels` bounds width times height, `max_side` each of the two.
    """

    max_pixels: int = 2048 * 2048
    max_side: int = 4096
    max_steps: int = 150
    max_images: int = 8
    size_multiple: int = 8


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the weights come from: exactly one of the three is set.

    `folder` is a diffusers pipeline folder, `hub` a Hugging Face repository id, `file` one
    .safetensors file. `revision` and `variant` (such as "fp16") go with folder and hub. `gguf` is
    a file with the quantized denoiser of a folder, in place of the weights that are there.
    """

    folder: str = ""
    hub: str = ""
    file: str = ""
    revision: str = ""
    variant: str = ""
    gguf: str = ""


class Combination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One word for each role of a model that says how it is placed; see
    `conductor/combining.py`."""

    encoders: str = STAYS
    denoiser: str = STAYS
    vae: str = STAYS

    @property
    def words(self) -> dict[str, str]:
        """By role."""
        return {ENCODERS: self.encoders, DENOISER: self.denoiser, VAE: self.vae}


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a model may use a GPU's memory; see `conductor/ladder.py` for the rungs.

    GB are of 10^9 bytes. `placement` is "auto" or a rung's name ("": not said), or says it for each
    role.
    `virtual_vram_gb`: so much of the denoiser is streamed (0: the planner decides).
    `swap_space_gb`: what streaming's buffers may take (0: whole blocks). `swap_device`: "cpu", or
    another GPU whose memory it may use. `max_vram_gb`: the model with its working memory takes no
    more, as on a smaller card (0: no cap). `prefetch`: blocks copied ahead. `min_free_gb`: what
    stays free beside it.
    """

    placement: str | Combination = ""
    virtual_vram_gb: float = 0.0
    swap_space_gb: float = 0.0
    swap_device: str = ""
    max_vram_gb: float = 0.0
    prefetch: int = 1
    min_free_gb: float = 0.0

    @property
    def named(self) -> str:
        """The placement by its name: that of the rung, where a combination is one of the ladder."""
        if isinstance(self.placement, str):
            return self.placement
        name = name_of(self.placement.words)
        rung = rung_named(name)
        return name if rung is None else rung.name

    def settings(self, default_placement: str = AUTO) -> MemorySettings:
        """The same in bytes; the default counts where no placement is said, and where it can:
        what is to be streamed in any case is never placed so that nothing is."""
        default = AUTO if self.virtual_vram_gb and streams_nothing(default_placement) else ""
        return MemorySettings(
            self.named or default or default_placement,
            round(self.virtual_vram_gb * 1e9),
            round(self.swap_space_gb * 1e9),
            self.swap_device,
            round(self.max_vram_gb * 1e9),
            self.prefetch,
            round(self.min_free_gb * 1e9),
        )


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model that the instructor offers.

    `kind` names the loader ("diffusers"). `dtype` is "float32", "float16", "bfloat16" or ""
    (the device's default). `vram_gb` is the instructor's own figure for the weights in GB
    (0: estimate it). `keep_warm_s` is how long an idle model stays before it may be dropped
    without need. `compile` is "auto" (its blocks may be compiled, to draw faster) or "off".
    `reason` is shown where `enabled` is false.
    """

    id: str
    title: str = ""
    description: str = ""
    kind: str = "diffusers"
    source: Source
    dtype: str = ""
    defaults: Defaults = Defaults()
    limits: Limits = Limits()
    pin: bool = False
    keep_warm_s: float = 900.0
    vram_gb: float = 0.0
    memory: Memory = Memory()
    compile: str = AUTO
    enabled: bool = True
    reason: str = ""
