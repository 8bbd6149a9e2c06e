"""A model's pipeline: which components it has, and what holds them together.

The components' modules and weights are others' business: here their folders are found and checked,
and the finished modules are put into a pipeline with its tokenizers and its scheduler.
"""

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workshop_gpu.conductor.rungs import main_denoiser
from workshop_gpu.worker.checkpoints import (
    BadCheckpoint,
    check_gguf,
    check_safetensors,
    is_pickle,
    pickle_refusal,
    read_json,
    weight_files,
)
from workshop_gpu.worker.protocol import ModelSource

# Through importlib, since the libraries' own annotations do not pass a strict type check.
diffusers: Any = importlib.import_module("diffusers")

_USUAL_CLASSES = {
    "diffusers": ("StableDiffusionPipeline", "StableDiffusion3Pipeline", "AutoencoderKL"),
    "transformers": ("CLIPTextModelWithProjection", "T5EncoderModel", "CLIPTokenizer"),
}
"""Both libraries import a class's module on its first use, which takes seconds for these."""

_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

_CHECKER_PARTS = ("safety_checker", "feature_extractor")
"""Left out: what people draw is the instructor's matter, and the checker would replace pictures by
black ones. Old folders name classes for them that the libraries no longer have."""


@dataclass(frozen=True)
class ComponentFiles:
    """One component with weights: how to open it, from which files, of how many bytes.

    `quantized`: it is one GGUF file, and the folder has its configuration only.
    """

    name: str
    cls: Any
    folder: Path
    variant: str
    files: tuple[Path, ...]
    size_bytes: int
    quantized: bool = False


@dataclass(frozen=True)
class Plan:
    """A model as its files describe it. Without `components` it is one file, opened as a whole."""

    source: ModelSource
    path: Path
    dtype: torch.dtype
    pipeline_class: Any
    components: tuple[ComponentFiles, ...]
    size_bytes: int


def import_usual_classes() -> None:
    """Import now what the first load would otherwise wait for."""
    for library, names in _USUAL_CLASSES.items():
        module = importlib.import_module(library)
        for name in names:
            getattr(module, name)


def plan_model(source: ModelSource, default_dtype: torch.dtype) -> Plan:
    """What is to be opened, checked as far as names, sizes and headers go. Raises BadCheckpoint.

    `default_dtype` is the device's, for models that name none.
    """
    if source.kind != "diffusers":
        raise BadCheckpoint(f'this worker opens models of kind "diffusers", not "{source.kind}"')
    path = Path(source.path)
    dtype = _dtype(source, default_dtype)
    if path.is_dir():
        index = read_json(path / "model_index.json")
        pipeline_class = _pipeline_class(index)
        components = _components(path, index, source.variant, source.gguf)
        size_bytes = sum(component.size_bytes for component in components)
        return Plan(source, path, dtype, pipeline_class, tuple(components), size_bytes)
    if path.is_file():
        if is_pickle(path):
            raise BadCheckpoint(pickle_refusal(path))
        if path.suffix != ".safetensors":
            raise BadCheckpoint(f"{path.name} is not a .safetensors file")
        return Plan(source, path, dtype, None, (), check_safetensors([path]))
    raise BadCheckpoint(f"there is nothing at {path}")


def assemble(plan: Plan, modules: dict[str, Any]) -> Any:
    """The pipeline around its components' modules. Raises BadCheckpoint, the libraries' errors."""
    components = dict(modules)
    accepted = inspect.signature(plan.pipeline_class.__init__).parameters
    if "safety_checker" in accepted:
        components |= dict.fromkeys(_CHECKER_PARTS)
    if "requires_safety_checker" in accepted:
        components["requires_safety_checker"] = False
    pipeline = plan.pipeline_class.from_pretrained(
        str(plan.path),
        torch_dtype=plan.dtype,
        local_files_only=True,
        use_safetensors=True,
        **components,
    )
    return _checked(pipeline)


def open_file(plan: Plan) -> Any:
    """A pipeline from one file, by the library's own loader, on the host.

    Its shape comes from a pipeline's configuration files. Sets the libraries' global state.
    """
    config = _config_for_file(plan.path)
    pipeline_class = _pipeline_class(read_json(config / "model_index.json"))
    pipeline = pipeline_class.from_single_file(
        str(plan.path), config=str(config), torch_dtype=plan.dtype, local_files_only=True
    )
    return _checked(pipeline)


def modules(pipeline: Any) -> dict[str, Any]:
    """The pipeline's components that hold weights, by name."""
    return {
        name: component
        for name, component in pipeline.components.items()
        if isinstance(component, torch.nn.Module)
    }


def _dtype(source: ModelSource, default_dtype: torch.dtype) -> torch.dtype:
    if source.dtype:
        if source.dtype not in _DTYPES:
            raise BadCheckpoint(f'dtype "{source.dtype}" is none of {", ".join(_DTYPES)}')
        return _DTYPES[source.dtype]
    if source.variant == "fp16" and default_dtype is not torch.float32:
        return torch.float16
    return default_dtype


def _pipeline_class(index: dict[str, Any]) -> Any:
    name = index.get("_class_name")
    found = getattr(diffusers, name, None) if isinstance(name, str) else None
    if not inspect.isclass(found) or not issubclass(found, diffusers.DiffusionPipeline):
        raise BadCheckpoint(
            f"model_index.json asks for the pipeline {name}, which diffusers "
            f"{diffusers.__version__} does not have; code from a model's folder is never run"
        )
    _check_text_to_image(found)
    return found


def _components(path: Path, index: dict[str, Any], variant: str, gguf: str) -> list[ComponentFiles]:
    """The components that hold weights, checked before anything is opened."""
    parts = []
    quantized = main_denoiser(index) if gguf else ""
    left_out = _CHECKER_PARTS if "safety_checker" in index else ()
    for name, value in index.items():
        if name.startswith("_") or name in left_out:
            continue
        if not isinstance(value, list) or len(value) != 2 or value[0] is None:
            continue
        cls = _component_class(name, str(value[0]), str(value[1]))
        folder = path / name
        if not folder.is_dir():
            raise BadCheckpoint(f"the folder {name} is missing in {path}")
        if not issubclass(cls, torch.nn.Module):
            continue
        if name == quantized:
            file = Path(gguf)
            parts.append(ComponentFiles(name, cls, folder, "", (file,), check_gguf(file), True))
            continue
        files, found_variant = weight_files(folder, variant)
        size_bytes = check_safetensors(files)
        parts.append(ComponentFiles(name, cls, folder, found_variant, tuple(files), size_bytes))
    if not parts:
        raise BadCheckpoint(f"model_index.json in {path} names no components")
    if variant and all(part.variant != variant for part in parts):
        raise BadCheckpoint(f'no component in {path} has files of the variant "{variant}"')
    return parts


def _component_class(name: str, library: str, class_name: str) -> Any:
    home: Any = getattr(diffusers.pipelines, library, None)
    if library in ("diffusers", "transformers"):
        home = importlib.import_module(library)
    cls = getattr(home, class_name, None)
    if not inspect.isclass(cls):
        raise BadCheckpoint(
            f"{name} is a {library}.{class_name}, which the installed libraries do not have; "
            "code from a model's folder is never run"
        )
    return cls


def _config_for_file(path: Path) -> Path:
    """The folder with the configuration: beside the file under its name, or in the hub cache."""
    beside = path.with_suffix("")
    if (beside / "model_index.json").is_file():
        return beside
    utilities = importlib.import_module("diffusers.loaders.single_file_utils")
    checkpoint = utilities.load_single_file_checkpoint(str(path), local_files_only=True)
    repository = utilities.fetch_diffusers_config(checkpoint)["pretrained_model_name_or_path"]
    del checkpoint
    hub = importlib.import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(repository, local_files_only=True))
    except Exception:  # the hub has a class for each way of not finding it
        raise BadCheckpoint(
            f"{path.name} looks like {repository}, whose configuration is not on this machine. "
            f"Put that model's small files (model_index.json, */config.json, tokenizers) into "
            f"{beside}, or download {repository} once."
        ) from None


def _checked(pipeline: Any) -> Any:
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _check_text_to_image(pipeline_class: Any) -> None:
    """Before anything of the model is read: what it is called with tells what it makes."""
    parameters = inspect.signature(pipeline_class.__call__).parameters
    name = pipeline_class.__name__
    if "prompt" not in parameters or "num_inference_steps" not in parameters:
        raise BadCheckpoint(f"{name} does not make pictures from a prompt")
    if "num_frames" in parameters:
        raise BadCheckpoint(f"{name} makes videos, which this version does not serve")
    for parameter in parameters.values():
        known = parameter.name in ("self", "prompt")
        variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and not variadic and not known:
            raise BadCheckpoint(f"{name} needs {parameter.name} besides a prompt")
