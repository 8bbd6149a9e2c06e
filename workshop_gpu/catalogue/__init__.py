"""The models on offer: `models.toml`, the shipped models, what lies in the Hugging Face cache."""

from workshop_gpu.catalogue.catalogue import Catalogue, default_models_file
from workshop_gpu.catalogue.files import LocalModel, LocalState
from workshop_gpu.catalogue.spec import Defaults, Limits, ModelSpec, Source

__all__ = [
    "Catalogue",
    "Defaults",
    "Limits",
    "LocalModel",
    "LocalState",
    "ModelSpec",
    "Source",
    "default_models_file",
]
