"""LoRAs that an instructor offers: what they are, which models they fit, what lies on this disk."""

import math
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from workshop_gpu.catalogue.pipeline_folder import PICKLE_SUFFIXES
from workshop_gpu.catalogue.roots import strays
from workshop_gpu.catalogue.safetensors_header import BrokenFile, loaded_bytes
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.catalogue.spec_rules import ID, Broken

MOST_SCALE = 2.0
"""Beyond that, in either direction, a LoRA drowns the model."""


class LoraSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A LoRA on offer: an addition to `models`, which counts with `scale` where nobody says
    otherwise. `file` is a .safetensors file."""

    id: str
    title: str = ""
    description: str = ""
    file: str
    models: tuple[str, ...]
    scale: float = 1.0


class OfferedLora(msgspec.Struct, frozen=True):
    """A LoRA as found: its file, the bytes that it takes once loaded, and what is wrong with it, in
    words that the instructor can act on ("": nothing)."""

    spec: LoraSpec
    path: str = ""
    file_bytes: int = 0
    problem: str = ""

    @property
    def id(self) -> str:
        return self.spec.id


def shipped_loras() -> tuple[LoraSpec, ...]:
    """Those that come with the package."""
    return (_shipped("shapes-outline", "shapes"), _shipped("shapes-dit-outline", "shapes-dit"))


def _shipped(name: str, model: str) -> LoraSpec:
    return LoraSpec(
        id=name,
        title="Outlines",
        description="Draws the shapes as outlines, without filling them.",
        file=str(ASSETS / "loras" / name / "pytorch_lora_weights.safetensors"),
        models=(model,),
    )


def broken_lora_rules(spec: LoraSpec, models: Collection[str]) -> Iterator[Broken]:
    """All rules that an entry breaks, where these models are on offer."""
    if not ID.fullmatch(spec.id):
        yield (
            ("id",),
            f'id "{spec.id[:80]}" must be up to 64 letters, digits, "-", "_" or ".", and begin '
            "with a letter or digit",
        )
    if "\0" in spec.file or not spec.file:
        yield ("file",), "file is the path of a .safetensors file"
    if not (math.isfinite(spec.scale) and abs(spec.scale) <= MOST_SCALE):
        yield ("scale",), f"scale must be from {-MOST_SCALE:g} to {MOST_SCALE:g}"
    if not spec.models:
        yield ("models",), "models names no model that the LoRA is for"
    for name in spec.models:
        if name not in models:
            there = ", ".join(models) or "none"
            yield ("models",), f'there is no model "{name}" in this file (there is: {there})'


def inspect_lora(
    spec: LoraSpec, base: Path, float_bytes: int, roots: tuple[Path, ...] = ()
) -> OfferedLora:
    """Look at a LoRA's file; a relative path starts at `base`. Its numbers take `float_bytes` each
    once loaded. With `roots` it must lie in one of these, links followed. Reads the header only;
    never raises for what it finds."""
    path = base / Path(spec.file).expanduser()
    if path.name.endswith(PICKLE_SUFFIXES):
        problem = f"{path.name} is a pickle: opening it can run any code, so it is refused"
        return OfferedLora(spec, problem=f"{problem}. Use a .safetensors file.")
    if path.suffix != ".safetensors":
        return OfferedLora(spec, problem=f"{path.name} is no .safetensors file.")
    try:
        for stray in strays(path, roots):
            problem = f"{stray} lies outside of the folders for models (model_roots)."
            return OfferedLora(spec, problem=problem)
        return OfferedLora(spec, str(path), loaded_bytes(path, float_bytes))
    except BrokenFile as problem:
        return OfferedLora(spec, problem=f"{problem}.")
    except OSError as problem:
        return OfferedLora(spec, problem=f"{path}: {problem.strerror}.")
