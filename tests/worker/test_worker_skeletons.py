"""Modules built without weights are the libraries' own, whatever the files' names look like."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.worker.opening import opened
from tests.worker.small_pipelines import sd1
from tests.worker.worker_host import ASSETS

pytestmark = pytest.mark.usefixtures("quiet_libraries")

DTYPES = ["float32", "bfloat16", "float16"]


@pytest.fixture
def dit(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ASSETS / "shapes-dit", tmp_path / "dit"))


def rewrite(file: Path, change: Any) -> None:
    """Let `change` alter the dict of a file's tensors."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def bare(folder: Path, dtype: str) -> Any:
    import diffusers
    import torch

    return diffusers.DiffusionPipeline.from_pretrained(
        str(folder), torch_dtype=getattr(torch, dtype), local_files_only=True
    )


def assert_same_tensors(model: Any, pipeline: Any) -> None:
    for component in model.components:
        library = getattr(pipeline, component.name)
        ours, theirs = (
            dict(module.named_parameters()) | dict(module.named_buffers())
            for module in (component.module, library)
        )
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert ours[name].dtype == tensor.dtype, name
            assert ours[name].stride() == tensor.stride(), name
            assert ours[name].equal(tensor), name
        assert component.module.training == library.training


def mapped(model: Any) -> dict[str, bool]:
    """Which components came straight from their files."""
    return {component.name: bool(component.files) for component in model.components}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["shapes", "shapes-dit"])
def test_the_shipped_models_tensors_are_the_librarys_and_come_straight_from_the_files(
    name: str, dtype: str
) -> None:
    model = opened(ASSETS / name, dtype=dtype)
    assert all(mapped(model).values())
    assert_same_tensors(model, bare(ASSETS / name, dtype))


def test_an_old_vaes_names_are_understood(tmp_path: Path) -> None:
    """Of before diffusers 0.14, as most checkpoints of Stable Diffusion have them."""
    sd1().save_pretrained(str(tmp_path))
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}

    def rename(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            for new, old in names.items():
                if f"attentions.0.{new}." in name:
                    tensors[name.replace(f".{new}.", f".{old}.")] = tensors.pop(name)
        assert any(".proj_attn." in name for name in tensors)

    rewrite(tmp_path / "vae" / "diffusion_pytorch_model.safetensors", rename)
    model = opened(tmp_path)
    assert mapped(model)["vae"]
    assert_same_tensors(model, bare(tmp_path, "float32"))


@pytest.mark.parametrize("equal", [True, False])
def test_where_a_file_has_two_different_tensors_for_one_place_the_library_decides(
    dit: Path, equal: bool
) -> None:
    def double(tensors: dict[str, Any]) -> None:
        twin = tensors["shared.weight"].clone()
        tensors["encoder.embed_tokens.weight"] = twin if equal else twin + 1

    rewrite(dit / "text_encoder_3" / "model.safetensors", double)
    model = opened(dit)
    assert mapped(model)["text_encoder_3"] is equal
    assert mapped(model)["text_encoder"]
    assert_same_tensors(model, bare(dit, "float32"))


@pytest.mark.parametrize(
    ("part", "file", "tensor"),
    [
        ("vae", "diffusion_pytorch_model.safetensors", "decoder.conv_out.bias"),
        ("text_encoder", "model.safetensors", "text_projection.weight"),
    ],
)
def test_weights_that_are_missing_are_named_and_never_made_up(
    dit: Path, part: str, file: str, tensor: str
) -> None:
    from workshop_gpu.worker.checkpoints import BadCheckpoint

    rewrite(dit / part / file, lambda tensors: tensors.pop(tensor))
    with pytest.raises(BadCheckpoint, match=f"{part} lack {tensor}"):
        opened(dit)


def test_building_leaves_the_default_dtype_as_it_was() -> None:
    import torch

    opened(ASSETS / "shapes-dit", dtype="bfloat16")
    assert torch.get_default_dtype() is torch.float32


def test_a_variant_with_shards_comes_straight_from_its_files(dit: Path) -> None:
    import diffusers
    import torch

    pipeline = bare(dit, "float16")
    shutil.rmtree(dit)
    pipeline.save_pretrained(str(dit), variant="fp16", max_shard_size="2MB")
    assert len(list((dit / "transformer").glob("*fp16-0*.safetensors"))) > 1
    model = opened(dit, dtype="float16", variant="fp16")
    assert all(mapped(model).values())
    library = diffusers.DiffusionPipeline.from_pretrained(
        str(dit), torch_dtype=torch.float16, variant="fp16", local_files_only=True
    )
    assert_same_tensors(model, library)


def test_a_module_that_keeps_computed_numbers_outside_its_buffers_is_built_with_them(
    tmp_path: Path,
) -> None:
    """As rotary tables of some transformers: no file has them, so they must be computed."""
    import torch
    from diffusers import ConfigMixin, ModelMixin
    from diffusers.configuration_utils import register_to_config

    from workshop_gpu.worker.skeletons import build_skeleton
    from workshop_gpu.worker.stored import stored_tensors

    class Turning(ModelMixin, ConfigMixin):  # type: ignore[misc]
        config_name = "config.json"

        @register_to_config
        def __init__(self, size: int = 4) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(size, size)
            self.register_buffer("table", torch.arange(size) / size, persistent=False)
            self.tables = {"plain": [torch.arange(size) / 3]}

    original = Turning()
    original.save_pretrained(str(tmp_path))
    file = tmp_path / "diffusion_pytorch_model.safetensors"
    skeleton = build_skeleton(Turning, tmp_path, stored_tensors([file]), torch.bfloat16)
    assert skeleton is not None
    assert skeleton.module.linear.weight.is_meta, "weights take no memory"
    library = Turning.from_pretrained(str(tmp_path), torch_dtype=torch.bfloat16)
    assert skeleton.module.table.equal(library.table)
    assert skeleton.module.table.dtype == library.table.dtype == torch.bfloat16
    assert skeleton.module.tables["plain"][0].equal(library.tables["plain"][0])
