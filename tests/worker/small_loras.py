"""LoRAs for pipelines of any make, with random weights, and the pictures of bare pipelines."""

from pathlib import Path
from typing import Any

from tests.worker.bare_pipelines import bare_picture

_DENOISER_LAYERS = ["to_q", "to_k", "to_v", "to_out.0", "conv1", "ff.net.2"]
_ENCODER_LAYERS = ["q_proj", "out_proj"]


def save_lora(pipeline_folder: Path, file: Path, *, seed: int = 1, rank: int = 4) -> Path:
    """A LoRA for this model's denoiser, and for its text encoders where its make has them."""
    import diffusers
    import torch
    from peft import LoraConfig, inject_adapter_in_model
    from peft.utils import get_peft_model_state_dict

    pipeline = diffusers.DiffusionPipeline.from_pretrained(str(pipeline_folder))
    layers: dict[str, Any] = {}
    torch.manual_seed(seed)
    for name, targets in _targets(pipeline).items():
        module = getattr(pipeline, name)
        settings = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules=targets, init_lora_weights="gaussian"
        )
        inject_adapter_in_model(settings, module)
        for path, parameter in module.named_parameters():
            if "lora_B" in path:
                torch.nn.init.normal_(parameter, std=0.05)
        layers[f"{name}_lora_layers"] = get_peft_model_state_dict(module)
        layers[f"{name}_lora_adapter_metadata"] = settings.to_dict()
    type(pipeline).save_lora_weights(str(file.parent), weight_name=file.name, **layers)
    return file


def _targets(pipeline: Any) -> dict[str, list[str]]:
    denoiser = "unet" if hasattr(pipeline, "unet") else "transformer"
    encoders = [
        name
        for name in ("text_encoder", "text_encoder_2")
        if type(getattr(pipeline, name, None)).__name__.startswith("CLIP")
    ]
    return {denoiser: _DENOISER_LAYERS} | dict.fromkeys(encoders, _ENCODER_LAYERS)


def bare_picture_with(
    folder: Path,
    params: Any,
    loras: dict[Path, float],
    dtype: str = "float32",
    device: str = "cpu",
) -> Any:
    """The picture that diffusers gives without us, with these LoRAs."""
    import diffusers
    import torch
    from transformers.integrations import peft

    peft.MIN_PEFT_VERSION = "0.18"  # transformers asks for one that is not out yet
    pipeline = diffusers.DiffusionPipeline.from_pretrained(
        str(folder), torch_dtype=getattr(torch, dtype)
    ).to(device)
    pipeline.set_progress_bar_config(disable=True)
    for number, file in enumerate(loras):
        pipeline.load_lora_weights(str(file), adapter_name=f"bare{number}")
    pipeline.set_adapters([f"bare{number}" for number in range(len(loras))], [*loras.values()])
    return bare_picture(pipeline, params)
