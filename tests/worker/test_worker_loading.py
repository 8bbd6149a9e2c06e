"""Loading and leaving through a real worker: what is measured, what is refused, what goes on."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.worker.conftest import room_bytes
from tests.worker.worker_host import ASSETS, Host, float32_bytes, params, source_of
from workshop_gpu.worker import protocol


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of a shipped model, to be spoilt."""
    return Path(shutil.copytree(ASSETS / "shapes", tmp_path / "model"))


@pytest.fixture(scope="module")
def neighbour(worker: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[protocol.Loaded]:
    """A model that stands on the device during all these tests, and is none of their business.

    It is a copy with other numbers, so that it shares no weights with them.
    """
    folder = tmp_path_factory.mktemp("models") / "neighbour"
    shutil.copytree(ASSETS / "shapes", folder)
    for path in folder.rglob("*.safetensors"):
        content = bytearray(path.read_bytes())
        header_bytes = int.from_bytes(content[:8], "little")
        content[8 + header_bytes] ^= 1  # the least of the first number's bits
        path.write_bytes(content)
    yield worker.load("neighbour", folder)
    evicted = worker.ask(protocol.Evict("neighbour"), protocol.Evicted)
    assert evicted.memory == protocol.Memory(used_bytes=0, ours_bytes=0)


@pytest.fixture(autouse=True)
def goes_on(worker: Host, neighbour: protocol.Loaded) -> Iterator[None]:
    """Whatever a test did: the neighbour still draws, and nothing else is left on the device."""
    yield
    for model in ("shapes", "shapes-dit", "broken"):
        worker.ask(protocol.Evict(model), protocol.Evicted)
    run = protocol.Run("goes on", "neighbour", params(steps=1))
    assert worker.ask(run, protocol.Done).drawn.memory.ours_bytes == neighbour.weights_bytes


def refusal(worker: Host, source: protocol.ModelSource) -> str:
    """The message of a load that must fail as a load does, and leave nothing."""
    failed = worker.ask(protocol.Load(source), protocol.LoadFailed)
    assert (failed.model, failed.error.kind) == (source.model, "load_failed")
    return failed.error.message


def test_a_loaded_model_takes_the_bytes_of_its_parameters(
    worker: Host, neighbour: protocol.Loaded
) -> None:
    loaded = worker.load("shapes-dit")
    few_buffers_bytes = 2_000_000
    excess_bytes = loaded.weights_bytes - float32_bytes("shapes-dit")
    assert 0 <= excess_bytes < few_buffers_bytes
    assert loaded.memory.ours_bytes == neighbour.weights_bytes + loaded.weights_bytes
    evicted = worker.ask(protocol.Evict("shapes-dit"), protocol.Evicted)
    assert evicted.freed_bytes == loaded.weights_bytes


def test_loading_counts_from_nothing_to_all_bytes_of_the_files(worker: Host, copy: Path) -> None:
    # Files that were never read: what is open already counts the bytes of its blocks.
    worker.send(protocol.Load(source_of("shapes", copy)))
    _, before = worker.collect(protocol.Loaded)
    done = [r.done_bytes for r in before if isinstance(r, protocol.Loading)]
    totals = {r.total_bytes for r in before if isinstance(r, protocol.Loading)}
    files_bytes = sum(p.stat().st_size for p in (ASSETS / "shapes").rglob("*.safetensors"))
    assert totals == {files_bytes}
    assert done[0] == 0
    assert done[-1] == files_bytes
    assert done == sorted(set(done))


def test_loading_what_is_loaded_answers_at_once(worker: Host) -> None:
    first = worker.load("shapes")
    worker.send(protocol.Load(source_of("shapes")))
    again = worker.expect(protocol.Loaded)
    assert again.weights_bytes == first.weights_bytes
    assert again.memory == first.memory


def test_the_same_name_with_another_source_replaces_the_model(
    worker: Host, neighbour: protocol.Loaded
) -> None:
    worker.load("shapes")
    other = worker.load("shapes", ASSETS / "shapes-dit")
    assert other.memory.ours_bytes == neighbour.weights_bytes + other.weights_bytes


def test_evicting_what_is_not_there_frees_nothing(worker: Host) -> None:
    assert worker.ask(protocol.Evict("nothing"), protocol.Evicted).freed_bytes == 0


def test_a_half_precision_dtype_halves_the_bytes(worker: Host) -> None:
    full = worker.load("shapes")
    half = worker.load("shapes", dtype="bfloat16")
    assert 0.49 < half.weights_bytes / full.weights_bytes < 0.55


def test_a_path_to_nothing_is_refused(worker: Host, tmp_path: Path) -> None:
    assert "nothing at" in refusal(worker, source_of("ghost", tmp_path / "ghost"))


def test_a_folder_that_is_no_pipeline_is_refused(worker: Host, tmp_path: Path) -> None:
    assert "model_index.json is missing" in refusal(worker, source_of("empty", tmp_path))


def test_a_kind_of_another_worker_is_refused(worker: Host) -> None:
    source = protocol.ModelSource("words", "llm", str(ASSETS / "shapes"))
    assert '"llm"' in refusal(worker, source)


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder", "tokenizer", "scheduler"])
def test_half_a_folder_is_refused_and_the_missing_part_named(
    worker: Host, copy: Path, part: str
) -> None:
    shutil.rmtree(copy / part)
    assert f"the folder {part} is missing" in refusal(worker, source_of("half", copy))


def test_a_component_without_weights_is_refused_and_named(worker: Host, copy: Path) -> None:
    (copy / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    assert "unet: no safetensors weights" in refusal(worker, source_of("hollow", copy))


@pytest.mark.parametrize("suffix", [".bin", ".ckpt", ".pt"])
def test_a_pickle_in_a_folder_is_refused_with_the_accepted_formats(
    worker: Host, copy: Path, suffix: str
) -> None:
    weights = copy / "unet" / "diffusion_pytorch_model.safetensors"
    weights.rename(weights.with_suffix(suffix))
    message = refusal(worker, source_of("pickled", copy))
    assert "pickle" in message
    assert "safetensors and GGUF" in message


def test_a_pickle_as_a_single_file_is_refused_unread(worker: Host, tmp_path: Path) -> None:
    file = tmp_path / "model.ckpt"
    file.write_bytes(b"\x80\x04cos\nsystem\n")
    assert "safetensors and GGUF" in refusal(worker, source_of("pickled", file))


def test_truncated_weights_are_refused_with_both_sizes(worker: Host, copy: Path) -> None:
    file = copy / "vae" / "diffusion_pytorch_model.safetensors"
    size_bytes = file.stat().st_size
    with file.open("r+b") as cut:
        cut.truncate(size_bytes - 1000)
    message = refusal(worker, source_of("cut", copy))
    assert str(file) in message
    assert str(size_bytes) in message


def test_weights_with_a_damaged_header_are_refused(worker: Host, copy: Path) -> None:
    file = copy / "unet" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(b"\x10" + bytes(7) + b"not json at all!" + bytes(100))
    assert "damaged" in refusal(worker, source_of("damaged", copy))


def test_weights_of_another_shape_are_refused(worker: Host, copy: Path) -> None:
    config = copy / "unet" / "config.json"
    changed = json.loads(config.read_text()) | {"block_out_channels": [32, 64]}
    config.write_text(json.dumps(changed))
    refusal(worker, source_of("misfit", copy))


def test_a_pipeline_with_code_of_its_own_is_refused_unrun(worker: Host, copy: Path) -> None:
    witness = copy / "witness"
    (copy / "pipeline.py").write_text(f"open({str(witness)!r}, 'w')")
    index = copy / "model_index.json"
    changed = json.loads(index.read_text()) | {"_class_name": ["pipeline", "Mine"]}
    index.write_text(json.dumps(changed))
    assert "never run" in refusal(worker, source_of("own code", copy))
    assert not witness.exists()


def test_a_component_with_code_of_its_own_is_refused(worker: Host, copy: Path) -> None:
    index = copy / "model_index.json"
    changed = json.loads(index.read_text()) | {"unet": ["my_unet", "MyUNet"]}
    index.write_text(json.dumps(changed))
    assert "my_unet.MyUNet" in refusal(worker, source_of("own part", copy))


def test_an_unknown_dtype_is_refused(worker: Host) -> None:
    assert "float7" in refusal(worker, source_of("shapes", dtype="float7"))


def test_a_variant_without_files_is_refused(worker: Host) -> None:
    assert 'variant "fp16"' in refusal(worker, source_of("shapes", variant="fp16"))


def test_a_variants_files_are_taken_before_the_plain_ones(worker: Host, copy: Path) -> None:
    plain = copy / "unet" / "diffusion_pytorch_model.safetensors"
    plain.rename(plain.with_name("diffusion_pytorch_model.fp16.safetensors"))
    loaded = worker.load("broken", copy, variant="fp16")
    assert worker.ask(protocol.Evict("broken"), protocol.Evicted).freed_bytes > 0
    assert loaded.weights_bytes > 0


def test_not_a_number_in_the_weights_fails_the_load_and_names_file_and_tensor(
    worker: Host, copy: Path
) -> None:
    file = copy / "vae" / "diffusion_pytorch_model.safetensors"
    poison(file)
    message = refusal(worker, source_of("broken", copy))
    assert str(file) in message
    assert "decoder.conv_out.bias holds NaN" in message


def test_two_models_of_the_same_files_take_their_bytes_once(
    worker: Host, neighbour: protocol.Loaded
) -> None:
    first = worker.load("shapes")
    again = worker.load("broken", ASSETS / "shapes")
    assert again.weights_bytes == first.weights_bytes
    few_buffers_bytes = again.memory.ours_bytes - first.memory.ours_bytes
    assert 0 <= few_buffers_bytes < first.weights_bytes / 100
    expected = worker.ask(protocol.Run("both", "broken", params()), protocol.Done)
    evicted = worker.ask(protocol.Evict("shapes"), protocol.Evicted)
    assert evicted.freed_bytes == few_buffers_bytes
    alone = worker.ask(protocol.Run("alone", "broken", params()), protocol.Done)
    assert pixels(alone) == pixels(expected)
    last = worker.ask(protocol.Evict("broken"), protocol.Evicted)
    assert last.freed_bytes == first.weights_bytes
    assert last.memory.ours_bytes == neighbour.weights_bytes


def pixels(done: protocol.Done) -> bytes:
    with Image.open(io.BytesIO(done.images[0])) as image:
        return image.tobytes()


def poison(file: Path) -> None:
    """Make the VAE's last bias not a number."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    tensors["decoder.conv_out.bias"].fill_(float("nan"))
    save_file(tensors, file)


def test_a_pretended_device_runs_out_of_memory_like_a_real_one(
    worker: Host, neighbour: protocol.Loaded
) -> None:
    """The neighbour takes the place of one of the shipped models."""
    worker.load("shapes")
    there = worker.load("shapes-dit")
    last = protocol.Load(source_of("broken", ASSETS / "shapes-dit-turbo"))
    failed = worker.ask(last, protocol.LoadFailed)
    assert failed.error.kind == "out_of_memory"
    assert failed.error.facts["free_bytes"] == room_bytes() - there.memory.ours_bytes
    assert failed.memory == there.memory
