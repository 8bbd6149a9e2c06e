"""The parts of a model that is one .safetensors file, by the prefixes of its tensors' names.

Whole models in one file are written with the names of the networks' first code: `model.
diffusion_model.` before the denoiser's tensors, `first_stage_model.` before the VAE's, and before
the text encoders' one of three. What the library makes of them is known once the model was loaded.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from workshop_gpu.catalogue.blocks import blocks_of, layers_of
from workshop_gpu.catalogue.pipeline_folder import WHOLE, Component
from workshop_gpu.catalogue.safetensors_header import tensor_bytes
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, ROLES, VAE

_PREFIXES = {
    DENOISER: re.compile(r"model\.diffusion_model\."),
    VAE: re.compile(r"(first_stage_model|vae)\."),
    ENCODERS: re.compile(
        r"cond_stage_model\.|conditioner\.embedders\.\d+\.|text_encoders\.[^.]+\."
    ),
}
_NAMES = {DENOISER: "denoiser", VAE: "vae", ENCODERS: "text_encoder"}
"""Names of components that have these roles."""
_REPEATED = re.compile(r"([^\d]*\.)?[^\d.]*(block|blocks|layers)\.\d+\.")
"""Lists of other names, such as `time_embed.0`, are none of repeated blocks."""


def components_of_file(file: Path, float_bytes: int) -> tuple[Component, ...]:
    """The file's components, one for each network that it holds; all of it as one that is named
    WHOLE where it does not hold a denoiser, a VAE and a text encoder under names that are known.
    Raises BrokenFile, and OSError where it cannot be read."""
    tensors = tensor_bytes(file, float_bytes)
    parts: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for name, size in tensors:
        role, prefix = _part_of(name)
        parts.setdefault((role, prefix), []).append((name.removeprefix(prefix), size))
    if {role for role, _ in parts} != {*ROLES}:
        return (Component(WHOLE, sum(size for _, size in tensors)),)
    return tuple(_component(role, found) for (role, _), found in parts.items())


def _part_of(name: str) -> tuple[str, str]:
    """The role, and the prefix. A tensor of no network, such as a table of the scheduler's, counts
    to the denoiser."""
    for role, prefix in _PREFIXES.items():
        if match := prefix.match(name):
            return role, match[0]
    return DENOISER, ""


def _component(role: str, tensors: Iterable[tuple[str, int]]) -> Component:
    found = list(tensors)
    repeated = [(name, size) for name, size in found if _REPEATED.match(name)]
    size = sum(size for _, size in found)
    layer_bytes, loose_bytes = layers_of(repeated)
    return Component(
        _NAMES[role],
        size,
        blocks_of(repeated),
        layer_bytes=layer_bytes,
        loose_bytes=loose_bytes,
    )
