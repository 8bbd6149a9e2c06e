"""The shape of a pipeline's networks: pipelines of one shape need equal working memory."""

import json
from hashlib import sha256
from pathlib import Path

from workshop_gpu.catalogue.files import LocalModel
from workshop_gpu.catalogue.pipeline_folder import component_config
from workshop_gpu.catalogue.spec import ModelSpec

_CLASS = "_class_name"


def shape_of(spec: ModelSpec, local: LocalModel) -> str:
    """A name that models have in common where all their components have the same configuration
    and dtype, and both or neither are guided, which doubles the batch. "" where the folder does
    not say."""
    configs = {part.name: _shape_of_one(Path(local.path) / part.name) for part in local.components}
    if not configs or not all(configs.values()):
        return ""
    guided = spec.defaults.guidance > 1
    quantized = ["gguf"] if local.gguf else []  # its layers are unpacked one by one
    text = json.dumps([configs, spec.dtype, guided, *quantized], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def _shape_of_one(component: Path) -> dict[str, object]:
    """What is said of the network, without where it came from (`_name_or_path` …)."""
    said = component_config(component)
    return {key: value for key, value in said.items() if not key.startswith("_") or key == _CLASS}
