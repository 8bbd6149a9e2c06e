"""The worker's parts that need no torch: cancellations, files' checks, pictures' records."""

import json
import struct
from pathlib import Path

import pytest
from PIL import Image

from tests.worker.worker_host import params
from workshop_gpu.worker.checkpoints import BadCheckpoint, check_safetensors, weight_files
from workshop_gpu.worker.images import ImageRecord, encode_png, read_record
from workshop_gpu.worker.link import Cancellations


def test_a_cancel_counts_only_while_its_job_is_known() -> None:
    cancellations = Cancellations()
    cancellations.cancel("early")
    cancellations.arrived("early")
    assert not cancellations.cancelled("early")
    cancellations.cancel("early")
    assert cancellations.cancelled("early")
    cancellations.ended("early")
    cancellations.arrived("early")
    assert not cancellations.cancelled("early")


def write_safetensors(path: Path, payload: bytes = bytes(8)) -> Path:
    header = {"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)
    return path


def test_whole_safetensors_are_counted(tmp_path: Path) -> None:
    files = [write_safetensors(tmp_path / name) for name in ("a.safetensors", "b.safetensors")]
    assert check_safetensors(files) == sum(file.stat().st_size for file in files)


@pytest.mark.parametrize("payload", [bytes(7), bytes(9), b""], ids=["short", "long", "none"])
def test_safetensors_of_a_wrong_length_are_refused(tmp_path: Path, payload: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="incomplete"):
        check_safetensors([write_safetensors(tmp_path / "a.safetensors", payload)])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 12) + b'{"a": "odd"}',
        struct.pack("<Q", 2) + b"\xff\xfe",
    ],
)
def test_what_is_no_safetensors_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(content)
    with pytest.raises(BadCheckpoint, match="damaged"):
        check_safetensors([file])


def test_a_shard_outside_its_folder_is_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "outside.safetensors")
    folder = tmp_path / "unet"
    folder.mkdir()
    index = {"weight_map": {"weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadCheckpoint, match="outside"):
        weight_files(folder, "")


def test_shards_of_a_variant_are_found_by_their_index(tmp_path: Path) -> None:
    shards = [f"model.fp16-0000{n}-of-00002.safetensors" for n in (1, 2)]
    for shard in shards:
        write_safetensors(tmp_path / shard)
    index = {"weight_map": {"a": shards[0], "b": shards[1], "c": shards[0]}}
    (tmp_path / "model.safetensors.index.fp16.json").write_text(json.dumps(index))
    files, variant = weight_files(tmp_path, "fp16")
    assert ([file.name for file in files], variant) == (shards, "fp16")


def test_a_folder_of_a_variant_alone_asks_for_the_variant(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.fp16.safetensors")
    with pytest.raises(BadCheckpoint, match=r"only model\.fp16\.safetensors.*variant"):
        weight_files(tmp_path, "")


def test_a_picture_is_unchanged_by_its_record() -> None:
    image = Image.effect_noise((64, 48), 90).convert("RGB")
    record = ImageRecord(model="m", params=params(prompt='"x" \\ \n ★'), metadata={"a": "ü"})
    png = encode_png(image, record)
    assert read_record(png) == record
    import io

    with Image.open(io.BytesIO(png)) as again:
        assert again.tobytes() == image.tobytes()
