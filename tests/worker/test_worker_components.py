"""Single components, also of makes whose pipelines are not served: as their library opens them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("quiet_libraries")


def wan_denoiser() -> Any:
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=32,
        ffn_dim=32,
        num_layers=2,
        rope_max_seq_len=32,
    )


def wan_encoder() -> Any:
    from transformers import UMT5Config, UMT5EncoderModel

    return UMT5EncoderModel(
        UMT5Config(vocab_size=64, d_model=16, d_ff=32, d_kv=8, num_layers=2, num_heads=2)
    )


def wan_vae() -> Any:
    from diffusers import AutoencoderKLWan

    return AutoencoderKLWan(base_dim=8, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1)


def language_model() -> Any:
    """Tied weights, and angles that the library computes at each opening."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    )


def inputs(make: Callable[[], Any]) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 64, (1, 7), generator=generator)
    video = torch.randn((1, 4, 3, 8, 8), generator=generator)
    if make is wan_denoiser:
        text = torch.randn((1, 5, 16), generator=generator)
        return {
            "hidden_states": video, "timestep": torch.tensor([500]), "encoder_hidden_states": text
        }  # fmt: skip
    return {"sample": video[:, :3]} if make is wan_vae else {"input_ids": tokens}


def output(module: Any, given: dict[str, Any]) -> Any:
    import torch

    dtype = module.dtype
    fitting = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in given.items()
    }
    with torch.inference_mode():
        return module(**fitting, return_dict=False)[0]


def component(cls: Any, folder: Path, dtype: Any) -> Any:
    """The component by the worker's own way, its weights in a block of memory."""
    import numpy as np

    from workshop_gpu.worker.checkpoints import weight_files
    from workshop_gpu.worker.components import Component
    from workshop_gpu.worker.filling import BlockReader
    from workshop_gpu.worker.host_copy import OwnCopy
    from workshop_gpu.worker.layout import split
    from workshop_gpu.worker.pool import Part
    from workshop_gpu.worker.skeletons import build_skeleton
    from workshop_gpu.worker.stored import opened, stored_tensors

    files, _ = weight_files(folder, "")
    skeleton = build_skeleton(cls, folder, stored_tensors(files), dtype)
    assert skeleton is not None, "its tensors are simply those of the files"
    weights, computed = split(skeleton)
    host = OwnCopy(weights.size_bytes)
    with opened(files) as reading:
        BlockReader(weights, reading).read(0, memoryview(host.tensor().numpy().view(np.uint8)))
    part = Part("key", weights.size_bytes, host, complete=True, in_pool=False)
    return Component("part", skeleton.module, weights, computed, part, tuple(files))


def bits(module: Any) -> dict[str, Any]:
    """All tensors with their dtypes: parameters, buffers, those that are saved nowhere too."""
    import torch

    tensors = {**dict(module.named_parameters(remove_duplicate=False))}
    tensors |= dict(module.named_buffers(remove_duplicate=False))
    return {
        name: (tensor.dtype, tensor.contiguous().flatten().view(torch.uint8).tolist())
        for name, tensor in tensors.items()
    }


def ties(module: Any) -> set[frozenset[str]]:
    by_address: dict[int, set[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        by_address.setdefault(parameter.data_ptr(), set()).add(name)
    return {frozenset(names) for names in by_address.values() if len(names) > 1}


@pytest.mark.parametrize("dtype_name", ["float32", "bfloat16"])
@pytest.mark.parametrize("make", [wan_denoiser, wan_encoder, wan_vae, language_model])
def test_however_often_it_left_it_is_what_its_library_opens(
    tmp_path: Path, make: Callable[[], Any], dtype_name: str
) -> None:
    import torch

    torch.manual_seed(9)
    dtype = getattr(torch, dtype_name)
    fresh = make().eval()
    fresh.save_pretrained(str(tmp_path), max_shard_size="10KB")
    bare = type(fresh).from_pretrained(str(tmp_path), torch_dtype=dtype).eval()
    given = inputs(make)
    expected = output(bare, given)

    ours = component(type(fresh), tmp_path, dtype)
    for _ in range(3):
        ours.part.device = ours.part.host.tensor().clone()  # another place each time
        ours.bind_to_device()
        assert bits(ours.module) == bits(bare)
        assert ties(ours.module) == ties(bare)
        assert torch.equal(output(ours.module, given), expected)
        ours.bind_to_host()
        ours.part.device = None
    assert expected.isfinite().all()
    assert expected.float().std() > 0


def test_the_language_models_head_is_its_embedding(tmp_path: Path) -> None:
    import torch

    language_model().save_pretrained(str(tmp_path))
    ours = component(type(language_model()), tmp_path, torch.float32)
    ours.part.device = ours.part.host.tensor().clone()
    ours.bind_to_device()
    assert ties(ours.module) == {frozenset({"lm_head.weight", "model.embed_tokens.weight"})}
