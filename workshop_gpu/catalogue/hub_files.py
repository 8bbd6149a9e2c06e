"""Which files of a Hugging Face repository a pipeline needs, and no others.

Repositories often hold the same weights many times: pickle and safetensors, half and full
precision, single files, ONNX, Flax. Only what the loader will open is fetched, and never pickle
or Python files.
"""

import re
from collections.abc import Iterable

from workshop_gpu.catalogue.pipeline_folder import (
    PICKLE_SUFFIXES,
    Incomplete,
    PipelineIndex,
    Refused,
    has_weights,
    loader_prefers_shards,
    pickle_words,
    weight_base,
)

_TEXT_SUFFIXES = (".json", ".txt", ".model", ".jinja")
"""Configurations and vocabularies (`.model` is sentencepiece's)."""


def needed_files(index: PipelineIndex, paths: Iterable[str], variant: str) -> tuple[str, ...]:
    """The paths to fetch, sorted. Raises Incomplete or Refused where the repository cannot do."""
    by_folder: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        by_folder.setdefault(folder, set()).add(name)
    needed = {"model_index.json"}
    for component, (library, class_name) in index.components.items():
        names = by_folder.get(component, set())
        if not names:
            raise Incomplete(f"the repository has no folder {component}/")
        texts = {name for name in names if name.endswith(_TEXT_SUFFIXES)}
        needed |= {f"{component}/{name}" for name in texts if ".index." not in name}
        if has_weights(class_name):
            weights = _weights(component, names, library, variant)
            needed |= {f"{component}/{name}" for name in weights}
    return tuple(sorted(needed))


def _weights(component: str, names: set[str], library: str, variant: str) -> set[str]:
    base = weight_base(library)
    for suffix in [f".{variant}", ""] if variant else [""]:
        single = f"{base}{suffix}.safetensors"
        index = f"{base}.safetensors.index{suffix}.json"
        numbers = r"-\d+-of-\d+"
        forms = f"{re.escape(base + suffix)}{numbers}|{re.escape(base)}{numbers}{re.escape(suffix)}"
        shards = {name for name in names if re.fullmatch(rf"(?:{forms})\.safetensors", name)}
        if index in names and shards and (loader_prefers_shards(library) or single not in names):
            return {index, *shards}
        if single in names:
            return {single}
    if any(name.endswith(PICKLE_SUFFIXES) for name in names):
        raise Refused(pickle_words(component))
    raise Incomplete(f"the repository has no safetensors weights for {component}")
