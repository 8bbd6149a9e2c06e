"""The models of the switching benchmark: SD3.5-Large's exact shape with random weights, twice.

`python -m benchmarks.switching_models FOLDER` writes three pipeline folders of 27.6 GB each, which
take 55 GB on the disk together:

- `large`;
- `turbo`: a denoiser of its own; its text encoders and its VAE are large's own files;
- `other`: turbo's denoiser file and text encoders and a VAE of its own, so that it shares nothing
  with `large`.

Random weights move like trained ones and need no download. They are made on the GPU.
"""

import argparse
import importlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from workshop_gpu.catalogue.shipped import ASSETS

MODELS = ("large", "turbo", "other")
DENOISER = "transformer"
SHAPES = ASSETS / "shapes-dit"
"""The shipped model of the same make: the files without weights come from it."""
SMALL_FOLDERS = ("tokenizer", "tokenizer_2", "tokenizer_3", "scheduler")
ENCODER_PARTS = ("text_encoder", "text_encoder_2", "text_encoder_3", "vae")
NEEDED_BYTES = 57_000_000_000
SPREAD = 0.02
"""Standard deviation of the random weights: small enough that no picture is a NaN."""


def main() -> int:
    """Writes the folders; the seconds it took go to stdout."""
    parser = argparse.ArgumentParser(description="Write the switching benchmark's models")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    started = time.perf_counter()
    for seed, name in enumerate(("large", "other")):
        for number, part in enumerate((*ENCODER_PARTS, DENOISER)):
            _write_part(part, folder / name / part, seed=100 * seed + number)
        _add_small_files(folder / name)
    turbo = folder / "turbo"
    turbo.mkdir()
    _add_small_files(turbo)
    for part in ENCODER_PARTS:
        (turbo / part).symlink_to(Path("..") / "large" / part)
    (turbo / DENOISER).symlink_to(Path("..") / "other" / DENOISER)
    print(f"{time.perf_counter() - started:.1f}")
    return 0


def _add_small_files(folder: Path) -> None:
    shutil.copy(SHAPES / "model_index.json", folder)
    for name in SMALL_FOLDERS:
        shutil.copytree(SHAPES / name, folder / name)


def _write_part(part: str, folder: Path, seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        module = _PARTS[part]()
        for weight in module.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=SPREAD)
    module.eval().to(torch.bfloat16).save_pretrained(str(folder), max_shard_size="10GB")
    del module
    torch.cuda.empty_cache()


def _clip(width: int, layers: int, heads: int, activation: str) -> Any:
    transformers: Any = importlib.import_module("transformers")
    shipped = json.loads((SHAPES / "text_encoder" / "config.json").read_text(encoding="utf-8"))
    return transformers.CLIPTextModelWithProjection(
        transformers.CLIPTextConfig(
            vocab_size=49408,
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            hidden_act=activation,
            projection_dim=width,
            max_position_embeddings=77,
            eos_token_id=shipped["eos_token_id"],
        )
    )


def _t5() -> Any:
    transformers: Any = importlib.import_module("transformers")
    return transformers.T5EncoderModel(
        transformers.T5Config(
            vocab_size=32128,
            d_model=4096,
            d_ff=10240,
            d_kv=64,
            num_layers=24,
            num_heads=64,
            feed_forward_proj="gated-gelu",
            is_encoder_decoder=False,
            use_cache=False,
        )
    )


def _vae() -> Any:
    diffusers: Any = importlib.import_module("diffusers")
    return diffusers.AutoencoderKL(
        block_out_channels=(128, 256, 512, 512),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2,
        latent_channels=16,
        norm_num_groups=32,
        sample_size=1024,
        scaling_factor=1.5305,
        shift_factor=0.0609,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def _denoiser() -> Any:
    diffusers: Any = importlib.import_module("diffusers")
    return diffusers.SD3Transformer2DModel(
        sample_size=128,
        patch_size=2,
        in_channels=16,
        out_channels=16,
        num_layers=38,
        attention_head_dim=64,
        num_attention_heads=38,
        joint_attention_dim=4096,
        caption_projection_dim=2432,
        pooled_projection_dim=2048,
        pos_embed_max_size=192,
        qk_norm="rms_norm",
    )


_PARTS: dict[str, Any] = {
    "text_encoder": lambda: _clip(768, 12, 12, "quick_gelu"),
    "text_encoder_2": lambda: _clip(1280, 32, 20, "gelu"),
    "text_encoder_3": _t5,
    "vae": _vae,
    DENOISER: _denoiser,
}


if __name__ == "__main__":
    sys.exit(main())
