"""Is a folder a whole diffusers pipeline, and how large are its weights? Without torch.

`model_index.json` names the components; only what it names is looked at, so that stray files
(ONNX, Flax, single-file copies, other variants) are neither counted nor missed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from workshop_gpu.catalogue import gguf_header
from workshop_gpu.catalogue.blocks import blocks_of, layers_of
from workshop_gpu.catalogue.safetensors_header import BrokenFile, tensor_bytes
from workshop_gpu.conductor.rungs import main_denoiser

PICKLE_SUFFIXES = (".bin", ".ckpt", ".pt", ".pth", ".pkl")
"""Formats that run code when they are opened; none of them is ever opened here."""
WHOLE = "all"
"""The name of a component that is all of a model whose parts are not known."""

_WITHOUT_WEIGHTS = ("Scheduler", "Tokenizer", "TokenizerFast", "Processor", "FeatureExtractor")
_LIBRARIES = (
    "diffusers", "transformers", "stable_diffusion", "latent_", "deepfloyd_", "kandinsky", "kolors",
)  # fmt: skip
"""Libraries, and the modules of diffusers that older indexes name in their place."""


class Incomplete(Exception):
    """Something is missing or cut off; a download or a copy can mend it."""


class Refused(Exception):
    """The files are of a kind that is never loaded."""


class PipelineIndex(msgspec.Struct, frozen=True):
    """What model_index.json says: the pipeline's class, and library and class of each component
    that is present."""

    class_name: str
    components: dict[str, tuple[str, str]]


class Component(msgspec.Struct, frozen=True):
    """A named part of a pipeline; `loaded_bytes` is what its weights take once loaded, of which
    `blocks_bytes` are those of its repeated blocks, with `layer_bytes` for their largest layer and
    `loose_bytes` for what of them is in no layer. `class_name` is its class in its library ("": not
    known)."""

    name: str
    loaded_bytes: int
    blocks_bytes: tuple[int, ...] = ()
    class_name: str = ""
    layer_bytes: int = 0
    loose_bytes: int = 0


def pipeline_class(folder: Path) -> str:
    """The pipeline's class name. Raises Incomplete or Refused."""
    return read_index(folder).class_name


def components(
    folder: Path, variant: str, float_bytes: int, gguf: Path | None = None
) -> tuple[Component, ...]:
    """The components that have weights; those of the denoiser are in `gguf` if that is given.
    Raises Incomplete or Refused, naming what is wrong."""
    return tuple(_components(folder, variant, float_bytes, gguf))


def _components(
    folder: Path, variant: str, float_bytes: int, gguf: Path | None
) -> Iterator[Component]:
    index = read_index(folder).components
    quantized = main_denoiser(index) if gguf else ""
    if gguf and not quantized:
        raise Refused(f"{folder} has no transformer and no unet that {gguf.name} could stand for")
    for name, (library, class_name) in index.items():
        part = folder / name
        if not part.is_dir() or not any(part.iterdir()):
            raise Incomplete(f"{name}/ is missing or empty in {folder}")
        if not has_weights(class_name):
            continue
        if not (part / "config.json").is_file():
            raise Incomplete(f"{name}/config.json is missing in {folder}")
        if gguf and name == quantized:
            tensors = _in_gguf(gguf, float_bytes)
        else:
            tensors = _in_folder(part, library, variant, float_bytes)
        size = sum(size for _, size in tensors)
        yield Component(name, size, blocks_of(tensors), class_name, *layers_of(tensors))


def _in_folder(part: Path, library: str, variant: str, float_bytes: int) -> list[tuple[str, int]]:
    try:
        return [
            each
            for file in _weight_files(part, library, variant)
            for each in tensor_bytes(file, float_bytes)
        ]
    except BrokenFile as broken:
        raise Incomplete(f"{part.name}/{broken}") from None


def _in_gguf(gguf: Path, float_bytes: int) -> list[tuple[str, int]]:
    try:
        return gguf_header.tensor_bytes(gguf, float_bytes)
    except BrokenFile as broken:
        raise Incomplete(str(broken)) from None


def has_weights(class_name: str) -> bool:
    """Schedulers, tokenizers and processors have none; everything else has."""
    return not class_name.endswith(_WITHOUT_WEIGHTS)


def weight_base(library: str) -> str:
    """What a component's weight files are called, up to the variant and the suffix."""
    return "diffusion_pytorch_model" if library == "diffusers" else "model"


def loader_prefers_shards(library: str) -> bool:
    """Where a folder holds the weights both whole and in shards, which of them is opened."""
    return library == "diffusers"


def pickle_words(where: str) -> str:
    """Why pickle files are refused, and what to use instead."""
    return (
        f"{where} holds pickle weights only (.bin, .ckpt, .pt): opening such a file can run any "
        "code, so they are refused. Use the model's .safetensors files"
    )


def component_config(component: Path) -> dict[str, Any]:
    """What a component's config.json says; nothing where it cannot be read."""
    try:
        said = json.loads((component / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def read_index(folder: Path) -> PipelineIndex:
    """Read a folder's model_index.json. Raises Incomplete or Refused."""
    path = folder / "model_index.json"
    if not path.is_file():
        if any(_with_suffix(folder, PICKLE_SUFFIXES)):
            raise Refused(pickle_words(folder.name or str(folder)))
        raise Incomplete(f"{folder} has no model_index.json, so it is no diffusers pipeline folder")
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        class_name = index["_class_name"]
    except (ValueError, KeyError, TypeError):
        raise Incomplete(f"{path} cannot be read as a pipeline's description") from None
    if not isinstance(class_name, str):
        raise Refused(
            f"{folder} is a pipeline with code of its own, which is never run from a model folder"
        )
    found: dict[str, tuple[str, str]] = {}
    for name, entry in index.items():
        if not isinstance(entry, list) or len(entry) != 2 or not all(entry):
            continue
        library, component_class = str(entry[0]), str(entry[1])
        if Path(name).name != name or name == "..":
            raise Refused(f'{path} names a component outside the folder: "{name}"')
        if not library.startswith(_LIBRARIES):
            raise Refused(
                f'{name} needs code of its own ("{library}"), which is never run from a model '
                "folder"
            )
        found[name] = (library, component_class)
    return PipelineIndex(class_name, found)


def _weight_files(part: Path, library: str, variant: str) -> list[Path]:
    """The files that the loader will open: the variant's where there are any, else the plain."""
    base = weight_base(library)
    for suffix in [f".{variant}", ""] if variant else [""]:
        single = part / f"{base}{suffix}.safetensors"
        index = part / f"{base}.safetensors.index{suffix}.json"
        if index.is_file() and (loader_prefers_shards(library) or not single.is_file()):
            return _shards(index)
        if single.is_file():
            return [single]
    raise _why_none(part, base)


def _why_none(part: Path, base: str) -> Exception:
    others = sorted(
        {
            file.name.removeprefix(f"{base}.").split(".")[0].split("-")[0]
            for file in part.glob(f"{base}.*.safetensors")
        }
    )
    if others:
        return Incomplete(
            f'{part.name}/ has only the variant "{others[0]}": write variant = "{others[0]}" '
            "into the source"
        )
    if any(_with_suffix(part, PICKLE_SUFFIXES)):
        return Refused(pickle_words(part.name))
    return Incomplete(f"{part.name}/ has no weights ({base}.safetensors is missing)")


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted({str(name) for name in json.loads(index.read_text())["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Incomplete(f"{index.parent.name}/{index.name} cannot be read") from None
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise Refused(f'{index.parent.name}/{index.name} names a file outside: "{outside[0]}"')
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise Incomplete(
            f"{index.parent.name}/ misses {len(missing)} of {len(names)} files: "
            f"{', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}"
        )
    pickled = [name for name in names if not name.endswith(".safetensors")]
    if pickled:
        raise Refused(pickle_words(index.parent.name))
    return [index.parent / name for name in names]


def _with_suffix(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    return (file for file in folder.iterdir() if file.name.endswith(suffixes))
