"""Opening a diffusers pipeline from local files, component by component, onto the device.

Each component goes to the device as soon as it is read, and once: the host's copy of one component
is gone before the next is read, and nothing is ever moved back. A model leaves by dropping every
reference to it.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workshop_gpu.worker.checkpoints import (
    BadCheckpoint,
    check_safetensors,
    is_pickle,
    pickle_refusal,
    read_json,
    weight_files,
)
from workshop_gpu.worker.devices import Device
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

OnBytes = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) as components arrive on the device."""


@dataclass(frozen=True)
class OpenModel:
    """A model on the device. `weights_bytes` is what it takes there.

    `dtypes` are the components' dtypes as opened: a job that broke off inside a pipeline's own
    temporary cast (SDXL's VAE) is repaired by them.
    """

    source: ModelSource
    pipeline: Any
    weights_bytes: int
    dtypes: dict[str, torch.dtype]


@dataclass(frozen=True)
class _Part:
    """One component with weights: how to open it and how large its files are."""

    name: str
    cls: Any
    folder: Path
    variant: str
    size_bytes: int


def import_usual_classes() -> None:
    """Import now what the first load would otherwise wait for."""
    for library, names in _USUAL_CLASSES.items():
        module = importlib.import_module(library)
        for name in names:
            getattr(module, name)


def open_model(source: ModelSource, device: Device, on_bytes: OnBytes) -> OpenModel:
    """Open the model on the device. Raises BadCheckpoint, torch's errors and the libraries' own."""
    if source.kind != "diffusers":
        raise BadCheckpoint(f'this worker opens models of kind "diffusers", not "{source.kind}"')
    before_bytes = device.allocated_bytes()
    path = Path(source.path)
    dtype = _dtype(source, device)
    if path.is_dir():
        pipeline = _open_folder(path, source.variant, dtype, device, on_bytes)
    elif path.is_file():
        pipeline = _open_file(path, dtype, device, on_bytes)
    else:
        raise BadCheckpoint(f"there is nothing at {path}")
    pipeline.set_progress_bar_config(disable=True)
    _check_text_to_image(pipeline)
    counted_bytes = tensor_bytes(pipeline)
    after_bytes = device.allocated_bytes()
    if before_bytes is not None and after_bytes is not None:
        counted_bytes = after_bytes - before_bytes
    dtypes = {name: module.dtype for name, module in modules(pipeline).items()}
    return OpenModel(source, pipeline, counted_bytes, dtypes)


def modules(pipeline: Any) -> dict[str, Any]:
    """The pipeline's components that hold weights, by name."""
    return {
        name: component
        for name, component in pipeline.components.items()
        if isinstance(component, torch.nn.Module)
    }


def tensor_bytes(pipeline: Any) -> int:
    """Bytes of all parameters and buffers; tied and shared ones count once."""
    sizes: dict[tuple[int, int], int] = {}
    for module in modules(pipeline).values():
        for tensor in (*module.parameters(), *module.buffers()):
            sizes[(tensor.data_ptr(), tensor.nbytes)] = tensor.nbytes
    return sum(sizes.values())


def repair_dtypes(model: OpenModel) -> None:
    """Undo a cast that a broken-off job left behind. The way back is exact: it only narrows."""
    for name, module in modules(model.pipeline).items():
        if name in model.dtypes and module.dtype != model.dtypes[name]:
            module.to(model.dtypes[name])


def _dtype(source: ModelSource, device: Device) -> torch.dtype:
    if source.dtype:
        if source.dtype not in _DTYPES:
            raise BadCheckpoint(f'dtype "{source.dtype}" is none of {", ".join(_DTYPES)}')
        return _DTYPES[source.dtype]
    if source.variant == "fp16" and device.torch_device.type == "cuda":
        return torch.float16
    return device.default_dtype


def _open_folder(
    path: Path, variant: str, dtype: torch.dtype, device: Device, on_bytes: OnBytes
) -> Any:
    index = read_json(path / "model_index.json")
    pipeline_class = _pipeline_class(index)
    parts = _parts(path, index, variant)
    total_bytes = sum(part.size_bytes for part in parts)
    done_bytes = 0
    on_bytes(0, total_bytes)
    components: dict[str, Any] = {}
    for part in parts:
        components[part.name] = _open_part(part, dtype).to(device.torch_device)
        done_bytes += part.size_bytes
        on_bytes(done_bytes, total_bytes)
    accepted = inspect.signature(pipeline_class.__init__).parameters
    if "safety_checker" in accepted:
        components |= dict.fromkeys(_CHECKER_PARTS)
    if "requires_safety_checker" in accepted:
        components["requires_safety_checker"] = False
    return pipeline_class.from_pretrained(
        str(path), torch_dtype=dtype, local_files_only=True, use_safetensors=True, **components
    )


def _pipeline_class(index: dict[str, Any]) -> Any:
    name = index.get("_class_name")
    found = getattr(diffusers, name, None) if isinstance(name, str) else None
    if not inspect.isclass(found) or not issubclass(found, diffusers.DiffusionPipeline):
        raise BadCheckpoint(
            f"model_index.json asks for the pipeline {name}, which diffusers "
            f"{diffusers.__version__} does not have; code from a model's folder is never run"
        )
    return found


def _parts(path: Path, index: dict[str, Any], variant: str) -> list[_Part]:
    """The components that hold weights, checked before anything is opened."""
    parts = []
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
        files, found_variant = weight_files(folder, variant)
        parts.append(_Part(name, cls, folder, found_variant, check_safetensors(files)))
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


def _open_part(part: _Part, dtype: torch.dtype) -> Any:
    """One component by its library's own loader, on the host."""
    options: dict[str, Any] = {"local_files_only": True, "use_safetensors": True}
    if part.variant:
        options["variant"] = part.variant
    # transformers calls it dtype since 4.56, diffusers (all supported ones) torch_dtype.
    is_diffusers = issubclass(part.cls, diffusers.ModelMixin)
    options["torch_dtype" if is_diffusers else _transformers_dtype_name()] = dtype
    return part.cls.from_pretrained(str(part.folder), **options).eval()


def _transformers_dtype_name() -> str:
    version: str = importlib.import_module("transformers").__version__
    major, minor = (int(number) for number in version.split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


def _open_file(path: Path, dtype: torch.dtype, device: Device, on_bytes: OnBytes) -> Any:
    """A single-file checkpoint; its shape comes from a pipeline's configuration files."""
    if is_pickle(path):
        raise BadCheckpoint(pickle_refusal(path))
    if path.suffix != ".safetensors":
        raise BadCheckpoint(f"{path.name} is not a .safetensors file")
    total_bytes = check_safetensors([path])
    on_bytes(0, total_bytes)
    config = _config_for_file(path)
    pipeline_class = _pipeline_class(read_json(config / "model_index.json"))
    pipeline = pipeline_class.from_single_file(
        str(path), config=str(config), torch_dtype=dtype, local_files_only=True
    ).to(device.torch_device)
    on_bytes(total_bytes, total_bytes)
    return pipeline


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


def _check_text_to_image(pipeline: Any) -> None:
    parameters = inspect.signature(pipeline.__call__).parameters
    name = type(pipeline).__name__
    if "prompt" not in parameters or "num_inference_steps" not in parameters:
        raise BadCheckpoint(f"{name} does not make pictures from a prompt")
    if "num_frames" in parameters:
        raise BadCheckpoint(f"{name} makes videos, which this version does not serve")
    for parameter in parameters.values():
        variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and not variadic and parameter.name != "prompt":
            raise BadCheckpoint(f"{name} needs {parameter.name} besides a prompt")
