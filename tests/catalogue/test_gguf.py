"""GGUF files by their headers: what is counted, and what is refused."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalogue.on_disk import write_pipeline
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.files import LocalState, inspect
from workshop_gpu.catalogue.gguf_header import tensor_bytes
from workshop_gpu.catalogue.safetensors_header import BrokenFile
from workshop_gpu.catalogue.spec import ModelSpec, Source
from workshop_gpu.catalogue.toml_file import parse_models

F32, F16, Q8_0, Q4_K, IQ1_S = 0, 1, 8, 12, 19


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(*tensors: tuple[str, tuple[int, ...], int, int], alignment: int = 32) -> bytes:
    """A file without its tensors' bytes: of each its name, shape, type and place."""
    listed = struct.pack("<IQ", 8, 2) + text("one") + text("two")
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("flux"),
        text("general.alignment") + struct.pack("<II", 4, alignment),
        text("numbers") + struct.pack("<IIQ3f", 9, 6, 3, 1.0, 2.0, 3.0),
        text("words") + struct.pack("<I", 9) + listed,
        text("quantized") + struct.pack("<I?", 7, True),
    ]
    found = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries)
    for name, shape, kind, start in tensors:
        found += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        found += struct.pack("<IQ", kind, start)
    return found + b"\0" * (-len(found) % alignment)


WHOLE = (
    ("double_blocks.0.img_attn.qkv.weight", (64, 10), Q8_0, 0),
    ("double_blocks.0.norm.scale", (64,), F32, 704),
    ("double_blocks.1.img_attn.qkv.weight", (256, 2), Q4_K, 960),
    ("double_blocks.1.norm.scale", (64,), F16, 1280),
)


def write(folder: Path, data: bytes) -> Path:
    file = folder / "small.gguf"
    file.write_bytes(data)
    return file


def test_quantized_tensors_count_as_they_are_and_the_others_in_the_models_dtype(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, header(*WHOLE, alignment=64) + b"\0" * 1408)
    assert [size for _, size in tensor_bytes(file, 2)] == [680, 128, 288, 128]
    assert [size for _, size in tensor_bytes(file, 4)] == [680, 256, 288, 256]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (header(*WHOLE) + b"\0" * 1407, "is cut off: 1,"),
        (header(*WHOLE)[:90], "is cut off or no GGUF file"),
        (b"PK\x03\x04", "is cut off or no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is cut off or no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "is cut off or no GGUF file"),
        (header(("blk.weight", (256,), IQ1_S, 0)), "does not compute with: take a Q4"),
        (b"", "is cut off or no GGUF file"),
    ],
)
def test_a_file_that_is_no_whole_one_is_named(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(BrokenFile, match=problem) as caught:
        tensor_bytes(write(tmp_path, data), 2)
    assert "small.gguf" in str(caught.value)


@given(st.binary(max_size=200), st.integers(0, 300))
def test_whatever_lies_in_a_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, keep: int
) -> None:
    file = write(tmp_path_factory.getbasetemp(), header(*WHOLE)[:keep] + noise)
    with suppress(BrokenFile):
        tensor_bytes(file, 2)


def look(base: Path, roots: tuple[Path, ...] = (), **source: str) -> str:
    found = inspect(ModelSpec(id="m", source=Source(**source)), base, roots=roots)
    assert found.state is LocalState.UNUSABLE
    return found.problem


def test_a_gguf_file_stands_for_the_denoiser_of_its_folder(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "pipeline")
    for weights in (folder / "unet").glob("*.safetensors"):
        weights.unlink()
    file = write(tmp_path, header(*WHOLE) + b"\0" * 1408)
    models = tmp_path / "models.toml"
    source = 'source = { folder = "pipeline", gguf = "small.gguf" }'
    models.write_text(f'[[model]]\nid = "m"\ndtype = "float16"\n{source}\n')
    catalogue = Catalogue(models)
    catalogue.load()
    local = catalogue.local("m")
    assert local.problem == ""
    sizes = {part.name: part.loaded_bytes for part in local.components}
    assert sizes["unet"] == 680 + 128 + 288 + 128
    assert next(p for p in local.components if p.name == "unet").blocks_bytes == (808, 416)
    assert catalogue.source("m").gguf == str(file)


def test_what_cannot_be_a_quantized_denoiser_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write_pipeline(tmp_path / "pipeline")
    whole = write(tmp_path, header(*WHOLE) + b"\0" * 1408)
    assert "name the folder of its pipeline too" in look(tmp_path, file="small.gguf")
    assert "is no .gguf file" in look(tmp_path, folder="pipeline", gguf="none.gguf")
    assert "is no .gguf file" in look(tmp_path, folder="pipeline", gguf="pipeline")
    inside = (tmp_path / "pipeline",)
    stray = look(tmp_path, inside, folder="pipeline", gguf="small.gguf")
    assert stray.startswith(f"{whole} lies outside")
    whole.write_bytes(whole.read_bytes()[:-1])
    assert "is cut off" in look(tmp_path, folder="pipeline", gguf="small.gguf")
    mistakes = parse_models(
        '[[model]]\nid = "m"\nsource = { hub = "a/b", gguf = "x.gguf" }'
    ).mistakes
    assert [mistake.reason for mistake in mistakes] == [
        "gguf goes with folder only, which has all but the denoiser"
    ]
