"""What of a model lies on this disk: where, how many bytes, and what is wrong with it."""

from enum import Enum
from pathlib import Path

import msgspec

from workshop_gpu.catalogue import hub_cache
from workshop_gpu.catalogue.accepts import EVERYTHING, accepts
from workshop_gpu.catalogue.pipeline_folder import (
    PICKLE_SUFFIXES,
    Component,
    Incomplete,
    Refused,
    components,
)
from workshop_gpu.catalogue.roots import strays
from workshop_gpu.catalogue.safetensors_header import BrokenFile
from workshop_gpu.catalogue.single_file import components_of_file
from workshop_gpu.catalogue.sizes import Sizes, sizes_of
from workshop_gpu.catalogue.spec import ModelSpec

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class LocalState(Enum):
    """Whether a model can be loaded from this disk as it is."""

    READY = "ready"
    TO_DOWNLOAD = "to_download"
    UNUSABLE = "unusable"


class LocalModel(msgspec.Struct, frozen=True):
    """A model's files as found. `path` is a pipeline folder or one .safetensors file, else "".

    `file_bytes` are the weights once loaded with the model's dtype (0 where unknown); `problem`
    says why it is UNUSABLE, in words that the instructor can act on. `accepts` is what it makes
    pictures from, `sizes` what its pictures may measure. `gguf` is the file of its denoiser, where
    that is quantized.
    """

    model: str
    state: LocalState
    path: str = ""
    file_bytes: int = 0
    components: tuple[Component, ...] = ()
    problem: str = ""
    accepts: tuple[str, ...] = EVERYTHING
    gguf: str = ""
    sizes: Sizes = Sizes()


def inspect(
    spec: ModelSpec,
    base: Path,
    *,
    default_dtype: str = "float32",
    hub: Path | None = None,
    roots: tuple[Path, ...] = (),
) -> LocalModel:
    """Look at a model's files; relative paths start at `base`, the folder of models.toml.

    `default_dtype` counts where the spec names none. `hub` is the Hugging Face cache (None: the
    one in use). With `roots`, folders and files must lie in one of these, links followed. Reads
    headers only; never raises for what it finds.
    """
    float_bytes = DTYPE_BYTES[spec.dtype or default_dtype]
    try:
        if spec.source.hub:
            return _in_hub(spec, hub or hub_cache.cache_folder(), float_bytes)
        path = resolve(spec.source.file or spec.source.folder, base)
        gguf = resolve(spec.source.gguf, base) if spec.source.gguf else None
        for stray in (*strays(path, roots), *(strays(gguf, roots) if gguf else ())):
            return _unusable(spec, f"{stray} lies outside of the folders for models (model_roots)")
        if spec.source.file:
            return _file(spec, path, float_bytes)
        return _folder(spec, path, float_bytes, gguf)
    except (Incomplete, Refused) as problem:
        return _unusable(spec, str(problem))
    except OSError as problem:
        return _unusable(spec, f"{problem.filename or 'its files'}: {problem.strerror}")


def resolve(path: str, base: Path) -> Path:
    """An instructor's path, with `~`; relative ones start at `base`."""
    return base / Path(path).expanduser()


def _in_hub(spec: ModelSpec, cache: Path, float_bytes: int) -> LocalModel:
    folder = hub_cache.snapshot(cache, spec.source.hub, spec.source.revision)
    if folder is None:
        return LocalModel(spec.id, LocalState.TO_DOWNLOAD)
    try:
        return _ready(spec, folder, components(folder, spec.source.variant, float_bytes))
    except Incomplete:
        return LocalModel(spec.id, LocalState.TO_DOWNLOAD)


def _folder(spec: ModelSpec, folder: Path, float_bytes: int, gguf: Path | None) -> LocalModel:
    if folder.is_file():
        return _unusable(spec, f"{folder} is a file; name it with `file` instead of `folder`")
    if not folder.is_dir():
        return _unusable(spec, f"the folder {folder} does not exist")
    if gguf is None:
        return _ready(spec, folder, components(folder, spec.source.variant, float_bytes))
    if not gguf.is_file() or gguf.suffix != ".gguf":
        return _unusable(spec, f"{gguf} is no .gguf file")
    parts = components(folder, spec.source.variant, float_bytes, gguf)
    return msgspec.structs.replace(_ready(spec, folder, parts), gguf=str(gguf))


def _file(spec: ModelSpec, file: Path, float_bytes: int) -> LocalModel:
    if file.name.endswith(PICKLE_SUFFIXES):
        return _unusable(
            spec,
            f"{file.name} is a pickle checkpoint: opening it can run any code, so it is refused. "
            "Use the model's .safetensors file",
        )
    if file.is_dir():
        return _unusable(spec, f"{file} is a folder; name it with `folder` instead of `file`")
    if not file.is_file():
        return _unusable(spec, f"the file {file} does not exist")
    if file.suffix == ".gguf":
        return _unusable(
            spec,
            f"{file.name} holds a denoiser only: name the folder of its pipeline too, "
            "source = { folder = …, gguf = … }",
        )
    if file.suffix != ".safetensors":
        return _unusable(spec, f"{file.name} is no .safetensors file")
    try:
        return _ready(spec, file, components_of_file(file, float_bytes))
    except BrokenFile as problem:
        return _unusable(spec, str(problem))


def _ready(spec: ModelSpec, path: Path, parts: tuple[Component, ...]) -> LocalModel:
    total = sum(part.loaded_bytes for part in parts)
    found = LocalModel(spec.id, LocalState.READY, str(path), total, parts)
    return msgspec.structs.replace(found, accepts=accepts(path), sizes=sizes_of(path))


def _unusable(spec: ModelSpec, problem: str) -> LocalModel:
    return LocalModel(spec.id, LocalState.UNUSABLE, problem=f"{problem}.")
