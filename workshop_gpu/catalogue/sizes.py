"""The sizes that a model draws, as the configurations in its folder say: that which it was made
for, and what it can never go beyond.

The formulas are those of diffusers' pipelines and networks, which say the same only once the
weights are there, and in words about latents.
"""

from collections.abc import Mapping
from math import isqrt, lcm
from pathlib import Path
from typing import Any

import msgspec

from workshop_gpu.catalogue.pipeline_folder import (
    Incomplete,
    PipelineIndex,
    Refused,
    component_config,
    read_index,
)
from workshop_gpu.catalogue.spec import Limits, ModelSpec
from workshop_gpu.conductor.rungs import main_denoiser

USUAL_SIDE = 1024
"""Of models that do not say; in pixels, like all sizes here."""
_USUAL_CELLS = 128
"""Of networks that do not say: Flux's, Qwen's and SDXL's pipelines take this number."""
_USUAL_SCALE = 8
_VAES = ("vae", "movq", "vqvae")
_LEVELS = ("block_out_channels", "encoder_block_out_channels")

_BY_SIDE = (
    "SD3Transformer2DModel", "CogView3PlusTransformer2DModel", "OmniGenTransformer2DModel",
)  # fmt: skip
_BY_AREA = ("AuraFlowTransformer2DModel",)
"""Networks that look positions up in a table, whose `pos_embed_max_size` is patches along its side,
or in all. The others reckon positions for any size."""

_CELLS_AT_ONCE = {
    "AuraFlowPipeline": 2,
    "CogView4Pipeline": 2,
    "LuminaPipeline": 2,
    "Lumina2Pipeline": 2,
    "ZImagePipeline": 2,
}
"""Pipelines that refuse sizes which are no multiple of so many cells; others take any number."""


class Sizes(msgspec.Struct, frozen=True):
    """Pixels. `width` and `height` are the model's own; no side can be more than `max_side` (0: no
    limit is known), and each is a multiple of `multiple`."""

    width: int = USUAL_SIDE
    height: int = USUAL_SIDE
    max_side: int = 0
    multiple: int = 1


def sizes_of(path: Path) -> Sizes:
    """Of a pipeline folder; a single file does not say."""
    try:
        index = read_index(path)
    except (Incomplete, Refused, OSError):
        return Sizes()
    denoiser = main_denoiser(index.components)
    vae = next((name for name in _VAES if name in index.components), "")
    if not denoiser or not vae:
        return Sizes()
    network, scale = component_config(path / denoiser), _scale(component_config(path / vae))
    height, width = _own_cells(network.get("sample_size"))
    multiple = _cells_at_once(index, denoiser, network) * scale
    return Sizes(
        width * scale,
        height * scale,
        _most_cells(index.components[denoiser][1], network) * scale // multiple * multiple,
        multiple,
    )


def sized(spec: ModelSpec, sizes: Sizes) -> ModelSpec:
    """The entry with the model's own size where it says none, and with no limit and no default
    beyond what the model can draw."""
    limits = spec.limits
    most = sizes.max_side or limits.max_side
    limits = msgspec.structs.replace(
        limits,
        max_side=min(limits.max_side, most),
        size_multiple=lcm(limits.size_multiple, sizes.multiple),
    )
    width = min(spec.defaults.width or sizes.width, limits.max_side)
    height = min(spec.defaults.height or sizes.height, limits.max_side)
    width, height = nearest(limits, width, height)
    defaults = msgspec.structs.replace(spec.defaults, width=width, height=height)
    return msgspec.structs.replace(spec, defaults=defaults, limits=limits)


def nearest(limits: Limits, width: int, height: int) -> tuple[int, int]:
    """The size within the limits that is nearest to this one, of the same shape."""
    multiple = limits.size_multiple
    scale = min(
        1.0,
        limits.max_side / max(width, height),
        (limits.max_pixels / (width * height)) ** 0.5,
    )
    longest = max(multiple, limits.max_side // multiple * multiple)
    width, height = (
        min(longest, max(multiple, round(side * scale / multiple) * multiple))
        for side in (width, height)
    )
    while width * height > limits.max_pixels and max(width, height) > multiple:
        # Rounded up by a little.
        width, height = (
            (width - multiple, height) if width >= height else (width, height - multiple)
        )
    return width, height


def _own_cells(said: object) -> tuple[int, int]:
    """A network's `sample_size`: a number, or height and width."""
    both = said if isinstance(said, list) and len(said) == 2 else [said, said]
    height, width = (_whole(each) or _USUAL_CELLS for each in both)
    return height, width


def _scale(vae: Mapping[str, Any]) -> int:
    """Pixels of a cell's side: each level of the VAE but the last halves the picture."""
    levels: list[object] = next(
        (vae[name] for name in _LEVELS if isinstance(vae.get(name), list)), []
    )
    return 2 ** (len(levels) - 1) if 0 < len(levels) < 16 else _USUAL_SCALE


def _cells_at_once(index: PipelineIndex, denoiser: str, network: Mapping[str, Any]) -> int:
    if index.components[denoiser][1] == "SD3Transformer2DModel":
        return _whole(network.get("patch_size")) or 1
    return _CELLS_AT_ONCE.get(index.class_name, 1)


def _most_cells(class_name: str, network: Mapping[str, Any]) -> int:
    """Along a side; 0: any number."""
    table, patch = _whole(network.get("pos_embed_max_size")), _whole(network.get("patch_size"))
    if class_name in _BY_SIDE:
        return table * patch
    return isqrt(table) * patch if class_name in _BY_AREA else 0


def _whole(said: object) -> int:
    """A number of 1 or more; else 0."""
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else 0
