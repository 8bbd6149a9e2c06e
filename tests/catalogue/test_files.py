import json

import pytest

from tests.catalogue.on_disk import safetensors, write_pipeline, write_snapshot
from workshop_gpu.catalogue.files import LocalState, inspect
from workshop_gpu.catalogue.spec import ModelSpec, Source

VALUES = 32
"""Numbers per component in the test's pipelines, which have three components with weights."""


def look(base, dtype="float16", **source):
    return inspect(ModelSpec(id="m", source=Source(**source), dtype=dtype), base)


def problem(base, **source):
    found = look(base, **source)
    assert found.state is LocalState.UNUSABLE
    assert found.path == ""
    return found.problem


def shard(pipeline, names, written):
    """The denoiser in shards, of which `written` are there."""
    (pipeline / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    index = {"weight_map": {f"weight{number}": name for number, name in enumerate(names)}}
    file = pipeline / "unet" / "diffusion_pytorch_model.safetensors.index.json"
    file.write_text(json.dumps(index))
    for name in written:
        (pipeline / "unet" / name).write_bytes(safetensors())


def test_a_whole_folder_is_ready_and_its_bytes_are_counted_in_the_dtype_it_is_loaded_in(pipeline):
    found = look(pipeline.parent, folder="pipeline")
    assert (found.state, found.path, found.problem) == (LocalState.READY, str(pipeline), "")
    assert found.file_bytes == 3 * VALUES * 2
    assert {part.name: part.loaded_bytes for part in found.components} == {
        "text_encoder": 64,
        "unet": 64,
        "vae": 64,
    }
    assert look(pipeline.parent, dtype="float32", folder="pipeline").file_bytes == 3 * VALUES * 4


def test_a_missing_folder_is_named(tmp_path):
    assert problem(tmp_path, folder="nowhere") == f"the folder {tmp_path}/nowhere does not exist."


def test_a_folder_that_is_a_file_and_a_file_that_is_a_folder_say_so(pipeline):
    index = str(pipeline / "model_index.json")
    assert "name it with `file`" in problem(pipeline, folder=index)
    assert "name it with `folder`" in problem(pipeline, file=str(pipeline))


def test_an_empty_folder_is_no_pipeline(tmp_path):
    assert "no model_index.json" in problem(tmp_path, folder=".")


def test_a_broken_description_is_named(pipeline):
    (pipeline / "model_index.json").write_text("{")
    assert "model_index.json cannot be read" in problem(pipeline, folder=".")


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder", "tokenizer", "scheduler"])
def test_half_a_folder_names_the_part_that_is_missing(pipeline, part):
    for file in (pipeline / part).iterdir():
        file.unlink()
    assert f"{part}/ is missing or empty" in problem(pipeline, folder=".")
    (pipeline / part).rmdir()
    assert f"{part}/ is missing or empty" in problem(pipeline, folder=".")


def test_missing_weights_and_configurations_are_named(pipeline):
    (pipeline / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    assert "unet/ has no weights" in problem(pipeline, folder=".")
    (pipeline / "text_encoder" / "config.json").unlink()
    assert "text_encoder/config.json is missing" in problem(pipeline, folder=".")


@pytest.mark.parametrize("kept", [0, 7, 8, 40, -1])
def test_half_a_file_is_noticed(pipeline, kept):
    file = pipeline / "unet" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert "cut off" in problem(pipeline, folder=".")
    assert "unet/diffusion_pytorch_model.safetensors" in problem(pipeline, folder=".")


def test_a_file_that_is_something_else_is_noticed(pipeline):
    file = pipeline / "unet" / "diffusion_pytorch_model.safetensors"
    file.write_bytes((8).to_bytes(8, "little") + b"not json" + bytes(20))
    assert "unreadable safetensors header" in problem(pipeline, folder=".")
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "Git LFS pointer" in problem(pipeline, folder=".")


@pytest.mark.parametrize("name", ["diffusion_pytorch_model.bin", "model.ckpt", "weights.pt"])
def test_pickle_weights_in_a_folder_are_refused(pipeline, name):
    (pipeline / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    (pipeline / "unet" / name).write_bytes(b"\x80\x04.")
    assert "pickle" in problem(pipeline, folder=".")
    assert "safetensors" in problem(pipeline, folder=".")


def test_pickle_beside_safetensors_is_simply_not_opened(pipeline):
    (pipeline / "unet" / "diffusion_pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert look(pipeline, folder=".").file_bytes == 3 * VALUES * 2


@pytest.mark.parametrize("name", ["model.ckpt", "model.pt", "model.pth", "model.bin"])
def test_a_pickle_checkpoint_is_refused_whether_or_not_it_exists(tmp_path, name):
    assert "pickle checkpoint" in problem(tmp_path, file=name)
    (tmp_path / name).write_bytes(b"\x80\x04.")
    assert "pickle checkpoint" in problem(tmp_path, file=name)


def test_a_single_file_is_checked_too(tmp_path):
    file = tmp_path / "one.safetensors"
    assert "does not exist" in problem(tmp_path, file="one.safetensors")
    file.write_bytes(safetensors())
    found = look(tmp_path, file="one.safetensors")
    assert (found.path, found.file_bytes) == (str(file), VALUES * 2)
    file.write_bytes(safetensors()[:-1])
    assert "cut off" in problem(tmp_path, file="one.safetensors")
    (tmp_path / "one.gif").write_bytes(b"GIF")
    assert "no .safetensors file" in problem(tmp_path, file="one.gif")


def test_shards_are_counted_once_and_missing_ones_named(pipeline):
    names = [f"diffusion_pytorch_model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    shard(pipeline, names, names)
    assert look(pipeline, folder=".").file_bytes == (2 + 3) * VALUES * 2
    (pipeline / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(safetensors())
    assert look(pipeline, folder=".").file_bytes == (2 + 3) * VALUES * 2
    (pipeline / "unet" / names[1]).unlink()
    assert f"unet/ misses 1 of 3 files: {names[1]}" in problem(pipeline, folder=".")


def test_an_index_that_points_outside_the_folder_is_refused(pipeline):
    shard(pipeline, ["../../etc/passwd"], [])
    assert "names a file outside" in problem(pipeline, folder=".")


def test_code_in_a_model_folder_is_refused(pipeline):
    index = json.loads((pipeline / "model_index.json").read_text())
    custom = index | {"unet": ["my_unet", "MyUNet"]}
    (pipeline / "model_index.json").write_text(json.dumps(custom))
    assert "needs code of its own" in problem(pipeline, folder=".")
    custom = index | {"_class_name": ["pipeline", "MyPipeline"]}
    (pipeline / "model_index.json").write_text(json.dumps(custom))
    assert "code of its own" in problem(pipeline, folder=".")


def test_a_variant_is_used_where_it_is_and_asked_for_where_nothing_else_is(tmp_path):
    folder = write_pipeline(tmp_path / "half", variant="fp16")
    assert 'write variant = "fp16"' in problem(tmp_path, folder="half")
    assert look(tmp_path, folder="half", variant="fp16").file_bytes == 3 * VALUES * 2
    plain = folder / "vae" / "diffusion_pytorch_model.fp16.safetensors"
    plain.rename(folder / "vae" / "diffusion_pytorch_model.safetensors")
    assert look(tmp_path, folder="half", variant="fp16").state is LocalState.READY


def test_a_model_of_the_hub_is_to_be_downloaded_until_it_is_whole(tmp_path, hub):
    spec = ModelSpec(id="m", source=Source(hub="org/name"), dtype="float16")
    assert inspect(spec, tmp_path, hub=hub).state is LocalState.TO_DOWNLOAD
    folder = write_snapshot(hub, "org/name")
    found = inspect(spec, tmp_path, hub=hub)
    assert (found.state, found.path) == (LocalState.READY, str(folder))
    (folder / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    found = inspect(spec, tmp_path, hub=hub)
    assert (found.state, found.problem) == (LocalState.TO_DOWNLOAD, "")


def test_a_folder_that_may_not_be_read_is_a_problem_and_no_crash(pipeline, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", "unet/config.json")

    monkeypatch.setattr("workshop_gpu.catalogue.files.components", refuse)
    assert problem(pipeline, folder=".") == "unet/config.json: Permission denied."
