"""Pipelines on disk without torch: configurations, and safetensors files of the right form."""

import json
from pathlib import Path

SD_INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "safety_checker": [None, None],
}


def safetensors(shape: tuple[int, ...] = (4, 8), dtype: str = "F16") -> bytes:
    size = 2 if dtype == "F16" else 4
    for side in shape:
        size *= side
    entry = {"dtype": dtype, "shape": list(shape), "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "weight": entry}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def write_pipeline(folder: Path, variant: str = "", class_name: str = "") -> Path:
    """A whole StableDiffusionPipeline folder with 32 half-precision numbers per component."""
    folder.mkdir(parents=True, exist_ok=True)
    index = SD_INDEX | ({"_class_name": class_name} if class_name else {})
    (folder / "model_index.json").write_text(json.dumps(index))
    dot = f".{variant}" if variant else ""
    for name, file in {
        "scheduler": "scheduler_config.json",
        "tokenizer": "tokenizer.json",
        "text_encoder": f"model{dot}.safetensors",
        "unet": f"diffusion_pytorch_model{dot}.safetensors",
        "vae": f"diffusion_pytorch_model{dot}.safetensors",
    }.items():
        part = folder / name
        part.mkdir(exist_ok=True)
        if file.endswith(".safetensors"):
            (part / "config.json").write_text("{}")
            (part / file).write_bytes(safetensors())
        else:
            (part / file).write_text("{}")
    return folder


def write_snapshot(cache: Path, hub_id: str, variant: str = "", class_name: str = "") -> Path:
    """A model in a Hugging Face cache, as after a finished download."""
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    return write_pipeline(repository / "snapshots" / commit, variant, class_name)
