"""The single-file form of a small Stable Diffusion 1 pipeline, with the original code's names."""

from pathlib import Path
from typing import Any

_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "time_emb_proj": "emb_layers.1",
    "conv_shortcut": "skip_connection",
}
_UNET = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
    "mid_block.resnets.0": "middle_block.0",
    "mid_block.attentions.0": "middle_block.1",
    "mid_block.resnets.1": "middle_block.2",
}
_VAE_ATTENTION = {
    "group_norm": "norm",
    "to_q": "q",
    "to_k": "k",
    "to_v": "v",
    "to_out.0": "proj_out",
}


def save_single_file(pipeline: Any, file: Path) -> Path:
    """Write the pipeline's weights as one file, as stable-diffusion-v1-5.safetensors has them."""
    from safetensors.torch import save_file

    tensors = {f"model.diffusion_model.{k}": v for k, v in _unet(pipeline.unet).items()}
    tensors |= {f"first_stage_model.{k}": v for k, v in _vae(pipeline.vae).items()}
    for name, tensor in pipeline.text_encoder.state_dict().items():
        plain = name.removeprefix("text_model.")
        tensors[f"cond_stage_model.transformer.text_model.{plain}"] = tensor
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    return file


def _unet(unet: Any) -> dict[str, Any]:
    renames = dict(_UNET)
    layers = unet.config.layers_per_block
    for i in range(len(unet.config.block_out_channels)):
        for j in range(layers):
            place = f"input_blocks.{(layers + 1) * i + j + 1}"
            renames[f"down_blocks.{i}.resnets.{j}"] = f"{place}.0"
            renames[f"down_blocks.{i}.attentions.{j}"] = f"{place}.1"
        renames[f"down_blocks.{i}.downsamplers.0.conv"] = (
            f"input_blocks.{(layers + 1) * (i + 1)}.0.op"
        )
        for j in range(layers + 1):
            place = f"output_blocks.{(layers + 1) * i + j}"
            renames[f"up_blocks.{i}.resnets.{j}"] = f"{place}.0"
            renames[f"up_blocks.{i}.attentions.{j}"] = f"{place}.1"
        attends = "CrossAttn" in unet.config.up_block_types[i]
        renames[f"up_blocks.{i}.upsamplers.0"] = (
            f"output_blocks.{(layers + 1) * i + layers}.{2 if attends else 1}"
        )
    return _renamed(unet.state_dict(), renames, _RESNET)


def _vae(vae: Any) -> dict[str, Any]:
    count = len(vae.config.block_out_channels)
    renames = {}
    for half in ("encoder", "decoder"):
        for j in range(2):
            renames[f"{half}.mid_block.resnets.{j}"] = f"{half}.mid.block_{j + 1}"
        renames[f"{half}.mid_block.attentions.0"] = f"{half}.mid.attn_1"
        renames[f"{half}.conv_norm_out"] = f"{half}.norm_out"
    for i in range(count):
        renames[f"encoder.down_blocks.{i}.downsamplers.0"] = f"encoder.down.{i}.downsample"
        up = f"decoder.up.{count - 1 - i}"
        renames[f"decoder.up_blocks.{i}.upsamplers.0"] = f"{up}.upsample"
        for j in range(vae.config.layers_per_block + 1):
            renames[f"encoder.down_blocks.{i}.resnets.{j}"] = f"encoder.down.{i}.block.{j}"
            renames[f"decoder.up_blocks.{i}.resnets.{j}"] = f"{up}.block.{j}"
    renamed = _renamed(vae.state_dict(), renames, {"conv_shortcut": "nin_shortcut"})
    return {
        name: tensor[:, :, None, None] if ".attn_1." in name and tensor.ndim == 2 else tensor
        for name, tensor in renamed.items()
    }


def _renamed(
    tensors: dict[str, Any], places: dict[str, str], parts: dict[str, str]
) -> dict[str, Any]:
    """Rename blocks by their place, then the parts of residual and attention blocks."""
    renamed = {}
    for name, tensor in tensors.items():
        place = max((p for p in places if name.startswith(f"{p}.")), key=len, default="")
        new = f"{places[place]}.{name[len(place) + 1 :]}" if place else name
        if ".resnets." in name:
            inner = new.split(".")
            new = ".".join(parts.get(part, part) for part in inner)
        if "mid_block.attentions" in name and "attn_1" in new:
            head, tail = new.split("attn_1.")
            part = max((p for p in _VAE_ATTENTION if tail.startswith(f"{p}.")), key=len)
            new = f"{head}attn_1.{_VAE_ATTENTION[part]}{tail[len(part) :]}"
        renamed[new] = tensor
    return renamed
