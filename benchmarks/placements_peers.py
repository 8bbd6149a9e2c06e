"""Other ways to run a model that is larger than the card, for the benchmark of placements."""

import importlib
from collections.abc import Callable
from typing import Any


def _resident(pipeline: Any, device: str) -> None:
    pipeline.to(device)


def _model_offload(pipeline: Any, device: str) -> None:
    pipeline.enable_model_cpu_offload(device=device)


def _grouped(level: str) -> Callable[[Any, str], None]:
    def place(pipeline: Any, device: str) -> None:
        torch: Any = importlib.import_module("torch")
        hooks: Any = importlib.import_module("diffusers.hooks")
        # At block level some text encoders compute beside their blocks: leaves for them always.
        for name, module in pipeline.components.items():
            if not isinstance(module, torch.nn.Module):
                continue
            if name == "vae":
                module.to(device)
                continue
            own_level = level if name == "transformer" else "leaf_level"
            options: dict[str, Any] = {"offload_type": own_level, "use_stream": device == "cuda"}
            if own_level == "block_level":
                options["num_blocks_per_group"] = 1
            hooks.apply_group_offloading(
                module,
                onload_device=torch.device(device),
                offload_device=torch.device("cpu"),
                **options,
            )

    return place


PEERS: dict[str, Callable[[Any, str], None]] = {
    "diffusers, resident": _resident,
    "diffusers, enable_model_cpu_offload": _model_offload,
    "diffusers, group offload by block, stream": _grouped("block_level"),
    "diffusers, group offload by leaf, stream": _grouped("leaf_level"),
}
