"""A LoRA's file, read and checked against a model before anything of the model is touched.

diffusers knows the formats and brings each to names of its own. Its pipelines would do more with
some files than to add layers (write norms into the model, or put wider layers into it): those are
refused here, since a model's weights belong to all.
"""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch

from workshop_gpu.worker.checkpoints import (
    BadCheckpoint,
    check_safetensors,
    is_pickle,
    pickle_refusal,
)

# Through importlib, since the libraries' own annotations do not pass a strict type check.
_utils: Any = importlib.import_module("diffusers.utils")

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class LoraFile:
    """What a LoRA changes, by the pipeline's components: tensors by their names there.

    `alphas` and `metadata` say how strongly, as diffusers' loaders take it: one or none of them.
    """

    components: dict[str, Tensors]
    alphas: dict[str, float] | None
    metadata: dict[str, Any] | None

    @property
    def count(self) -> int:
        """Of all tensors."""
        return sum(map(len, self.components.values()))

    def metadata_of(self, component: str) -> dict[str, Any] | None:
        return _under(component, self.metadata) if self.metadata else None

    def alphas_of(self, component: str) -> dict[str, float] | None:
        return _under(component, self.alphas) if self.alphas else None


def read_lora(file: Path, pipeline: Any) -> LoraFile:
    """The LoRA for this pipeline; all of it fits by name and shape. Raises BadCheckpoint, and what
    diffusers raises for names that it does not know."""
    if is_pickle(file):
        raise BadCheckpoint(pickle_refusal(file))
    check_safetensors([file])
    if not hasattr(pipeline, "lora_state_dict"):
        raise BadCheckpoint(f"{type(pipeline).__name__} takes no LoRAs")
    tensors, alphas, metadata = _by_diffusers(file, pipeline)
    components: dict[str, Tensors] = {}
    for name in tensors:
        if "lora" not in name:
            raise BadCheckpoint(f'{file.name} holds "{name}", which belongs to no LoRA')
        component = name.partition(".")[0]
        module = pipeline.components.get(component)
        if not isinstance(module, torch.nn.Module):
            problem = f'changes "{component}", which this model does not have'
            raise BadCheckpoint(f"{file.name} {problem}: it is for another model")
        if component not in components:
            own = _under(component, tensors)
            components[component] = own if _is_denoiser(module) else _for_encoder(module, own)
    for component, own in components.items():
        for problem in _misfits(pipeline.components[component], own):
            raise BadCheckpoint(f"{file.name} {problem}")
    if not components:
        raise BadCheckpoint(f"{file.name} holds no tensors")
    return LoraFile(components, alphas or None, None if alphas else metadata or None)


def add_adapter(module: Any, component: str, name: str, lora: LoraFile) -> None:
    """Put PEFT's layers around those that the LoRA changes. Sets the libraries' global state."""
    tensors = lora.components[component]
    if _is_denoiser(module):
        whole = {f"{component}.{path}": tensor for path, tensor in tensors.items()}
        module.load_lora_adapter(
            whole, prefix=component, adapter_name=name, network_alphas=lora.alphas,
            metadata=lora.metadata, low_cpu_mem_usage=True,
        )  # fmt: skip
        return
    # The same for an encoder: transformers' own way goes over the weights of the whole module.
    alphas, metadata = lora.alphas_of(component), lora.metadata_of(component)
    ranks = {key: tensor.shape[1] for key, tensor in tensors.items() if "lora_B.weight" in key}
    settings = metadata or _utils.get_peft_kwargs(ranks, alphas, tensors, is_unet=False)
    config = peft.LoraConfig(**settings)
    peft.inject_adapter_in_model(config, module, name, state_dict=tensors, low_cpu_mem_usage=True)
    peft.set_peft_model_state_dict(module, tensors, name, low_cpu_mem_usage=True)


def _by_diffusers(file: Path, pipeline: Any) -> tuple[Tensors, dict[str, float], dict[str, Any]]:
    """Tensors, alphas and metadata; each of diffusers' pipelines returns them in a way of its own.

    Without alphas and metadata every LoRA counts as it was stored.
    """
    options: dict[str, Any] = {"local_files_only": True, "use_safetensors": True}
    if "return_alphas" in inspect.signature(pipeline.lora_state_dict).parameters:
        options["return_alphas"] = True
    tensors, *between, metadata = pipeline.lora_state_dict(
        str(file.parent), weight_name=file.name, return_lora_metadata=True, **options
    )
    alphas = between[0] if between else None
    return tensors, alphas or {}, metadata or {}


def _is_denoiser(module: Any) -> bool:
    return hasattr(module, "load_lora_adapter")


def _for_encoder(module: Any, tensors: Tensors) -> Tensors:
    """The names by which PEFT finds an encoder's layers; several ways to write them are about."""
    named: Tensors = _utils.convert_state_dict_to_peft(
        _utils.convert_state_dict_to_diffusers(tensors)
    )
    if hasattr(module, "text_model"):
        return named
    return {name.removeprefix("text_model."): tensor for name, tensor in named.items()}


def _misfits(module: Any, tensors: Tensors) -> Iterator[str]:
    """What of it is not for this module. PEFT's pair of a layer: "A" reads what the layer reads,
    "B" writes what it writes."""
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            yield f"holds something in {name} that is no number (NaN)"
        layer, _, kind = name.partition(".lora_")
        place = {"A.weight": 1, "B.weight": 0}.get(kind)
        if place is None:
            continue
        try:
            shape = _shape(module.get_submodule(layer))
        except AttributeError:
            yield f'changes "{layer}", which this model does not have: it is for another model'
        else:
            if tensor.ndim != len(shape) or tensor.shape[place] != shape[place]:
                yield (
                    f'has {list(tensor.shape)} for "{layer}", which is {list(shape)}: it is for '
                    "another model"
                )


def _shape(layer: Any) -> tuple[int, ...]:
    """What the layer's weight is, also where it is kept in fewer bits. Raises AttributeError for
    what is no layer."""
    if isinstance(layer, torch.nn.Linear):
        return (layer.out_features, layer.in_features)
    return tuple(layer.weight.shape)


def _under(component: str, named: dict[str, Any]) -> dict[str, Any]:
    """What stands under a component's name, without that."""
    start = f"{component}."
    return {name.removeprefix(start): it for name, it in named.items() if name.startswith(start)}
