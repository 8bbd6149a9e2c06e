"""Is a folder a whole diffusers pipeline, and how large are its weights? Without torch.

`model_index.json` names the components; only what it names is looked at, so that stray files
(ONNX, Flax, single-file copies, other variants) are neither counted nor missed.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from workshop_gpu.catalogue.safetensors_header import BrokenFile, loaded_bytes

PICKLE_SUFFIXES = (".bin", ".ckpt", ".pt", ".pth", ".pkl")
"""Formats that run code when they are opened; none of them is ever opened here."""

_WITHOUT_WEIGHTS = ("Scheduler", "Tokenizer", "TokenizerFast", "Processor", "FeatureExtractor")
_WEIGHT_NAMES = {"diffusers": "diffusion_pytorch_model"}
_DEFAULT_WEIGHT_NAME = "model"
_LIBRARIES = ("diffusers", "transformers")


class Incomplete(Exception):
    """Something is missing or cut off; a download or a copy can mend it."""


class Refused(Exception):
    """The files are of a kind that is never loaded."""


class Component(msgspec.Struct, frozen=True):
    """A named part of a pipeline; `loaded_bytes` is what its weights take once loaded."""

    name: str
    loaded_bytes: int


def pipeline_class(folder: Path) -> str:
    """The pipeline's class name. Raises Incomplete or Refused."""
    return _index(folder)[0]


def components(folder: Path, variant: str, float_bytes: int) -> tuple[Component, ...]:
    """The components that have weights. Raises Incomplete or Refused, naming what is wrong."""
    return tuple(_components(folder, variant, float_bytes))


def _components(folder: Path, variant: str, float_bytes: int) -> Iterator[Component]:
    for name, (library, class_name) in _index(folder)[1].items():
        part = folder / name
        if library not in _LIBRARIES and not _is_diffusers_module(library):
            raise Refused(
                f'{name} needs code of its own ("{library}"), which is never run from a model '
                "folder"
            )
        if not part.is_dir() or not any(part.iterdir()):
            raise Incomplete(f"{name}/ is missing or empty in {folder}")
        if class_name.endswith(_WITHOUT_WEIGHTS):
            continue
        if not (part / "config.json").is_file():
            raise Incomplete(f"{name}/config.json is missing in {folder}")
        try:
            total = sum(
                loaded_bytes(file, float_bytes) for file in _weight_files(part, library, variant)
            )
        except BrokenFile as broken:
            raise Incomplete(f"{name}/{broken}") from None
        yield Component(name, total)


def _is_diffusers_module(library: str) -> bool:
    """Older indexes name a pipeline module of diffusers in place of a library."""
    return library.startswith(("stable_diffusion", "latent_", "deepfloyd_", "kandinsky"))


def _index(folder: Path) -> tuple[str, dict[str, tuple[str, str]]]:
    """The class name, and library and class of every component that is present."""
    path = folder / "model_index.json"
    if not path.is_file():
        if any(_with_suffix(folder, PICKLE_SUFFIXES)):
            raise Refused(_pickle_words(folder.name or str(folder)))
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
        if Path(name).name != name:
            raise Refused(f'{path} names a component outside the folder: "{name}"')
        found[name] = (str(entry[0]), str(entry[1]))
    return class_name, found


def _weight_files(part: Path, library: str, variant: str) -> list[Path]:
    """The files that the loader will open: the variant's where there are any, else the plain."""
    base = _WEIGHT_NAMES.get(library, _DEFAULT_WEIGHT_NAME)
    for suffix in [f".{variant}", ""] if variant else [""]:
        single = part / f"{base}{suffix}.safetensors"
        index = part / f"{base}.safetensors.index{suffix}.json"
        sharded_first = library == "diffusers"
        if index.is_file() and (sharded_first or not single.is_file()):
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
        return Refused(_pickle_words(part.name))
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
        raise Refused(_pickle_words(index.parent.name))
    return [index.parent / name for name in names]


def _with_suffix(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    return (file for file in folder.iterdir() if file.name.endswith(suffixes))


def _pickle_words(where: str) -> str:
    return (
        f"{where} holds pickle weights only (.bin, .ckpt, .pt): opening such a file can run any "
        "code, so they are refused. Use the model's .safetensors files"
    )
