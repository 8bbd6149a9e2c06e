"""Blocks read in stretches of any size are what the library reads; odd files are told apart."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def saved(path: Path, **tensors: Any) -> dict[str, Any]:
    from safetensors.torch import save_file

    save_file(tensors, path)
    return tensors


@pytest.fixture
def tensors(tmp_path: Path) -> dict[str, Any]:
    """Of all sorts: lengths that leave gaps, one number, none, integers, infinities."""
    import torch

    torch.manual_seed(0)
    return saved(
        tmp_path / "a.safetensors",
        long=torch.randn(100, 33),
        odd=torch.randn(7),
        one=torch.tensor(3.5),
        none=torch.empty(0, 4),
        half=torch.randn(50, 3).to(torch.bfloat16),
        small=torch.randn(129).to(torch.float16),
        count=torch.arange(300),
        mask=torch.tensor([float("inf"), float("-inf"), 0.0]),
        flags=torch.tensor([True, False, True]),
    )


@contextlib.contextmanager
def block_of(path: Path, dtype: Any = None) -> Iterator[tuple[Any, Any]]:
    """The block of a file's tensors, floats as `dtype`, and its reader."""
    from workshop_gpu.worker.filling import BlockReader
    from workshop_gpu.worker.layout import lay_out
    from workshop_gpu.worker.skeletons import Origin
    from workshop_gpu.worker.stored import opened, stored_tensors

    origins = []
    for stored in sorted(stored_tensors([path]).values(), key=lambda each: each.start):
        wanted = dtype if dtype is not None and stored.dtype.is_floating_point else stored.dtype
        origins.append(Origin((), stored, wanted))
    block = lay_out(origins)
    with opened([path]) as files:
        yield block, BlockReader(block, files)


def read(block: Any, reader: Any, stretch_bytes: int) -> Any:
    import torch

    memory = torch.full((block.size_bytes,), 0xAA, dtype=torch.uint8)
    data = memoryview(memory.numpy())
    for start in range(0, block.size_bytes, stretch_bytes):
        reader.read(start, data[start : start + stretch_bytes])
    return memory


@pytest.mark.parametrize("stretch_bytes", [256, 1024, 4096, 10**6])
def test_a_block_read_in_stretches_holds_the_tensors_bit_for_bit(
    tmp_path: Path, tensors: dict[str, Any], stretch_bytes: int
) -> None:
    from workshop_gpu.worker.layout import views

    with block_of(tmp_path / "a.safetensors") as (block, reader):
        memory = read(block, reader, stretch_bytes)
        for piece, view in zip(block.pieces, views(block, memory), strict=True):
            original = tensors[piece.source.name]
            assert view.dtype == original.dtype
            assert view.equal(original)
            memory[piece.place.start : piece.place.stop] = 0
        assert not memory.any(), "what lies between the tensors is zeros"


@pytest.mark.parametrize("stretch_bytes", [256, 10**6])
def test_a_cast_on_the_way_is_the_librarys_cast(
    tmp_path: Path, tensors: dict[str, Any], stretch_bytes: int
) -> None:
    import torch

    from workshop_gpu.worker.layout import views

    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        with block_of(tmp_path / "a.safetensors", dtype) as (block, reader):
            memory = read(block, reader, stretch_bytes)
            for piece, view in zip(block.pieces, views(block, memory), strict=True):
                original = tensors[piece.source.name]
                floats = original.is_floating_point()
                assert view.equal(original.to(dtype) if floats else original)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", ["nan", "-nan"])
def test_one_number_that_is_none_is_found_and_named(tmp_path: Path, dtype: str, bad: str) -> None:
    import torch

    from workshop_gpu.worker.checkpoints import BadCheckpoint

    numbers = torch.full((1000,), float("-inf"), dtype=getattr(torch, dtype))
    numbers[997] = float("nan")
    if bad == "-nan":
        numbers[997] = -numbers[997]
    path = tmp_path / "a.safetensors"
    saved(path, fine=torch.ones(5), spoilt=numbers)
    with block_of(path) as (block, reader), pytest.raises(BadCheckpoint) as caught:
        read(block, reader, 512)
    assert f"{path}: spoilt holds NaN" in str(caught.value)


@pytest.mark.parametrize("name", ["long", "half", "small", "mask"])
def test_a_block_that_lies_on_a_device_already_is_checked_there(
    tmp_path: Path, tensors: dict[str, Any], name: str
) -> None:
    from workshop_gpu.worker.checkpoints import BadCheckpoint
    from workshop_gpu.worker.filling import check_numbers

    with block_of(tmp_path / "a.safetensors") as (block, reader):
        good = read(block, reader, 1000)
        check_numbers(block, good)
        place = next(piece.place for piece in block.pieces if piece.source.name == name)
        good[place.start : place.stop].view(place.dtype)[-1] = float("nan")
        with pytest.raises(BadCheckpoint, match=rf"a\.safetensors: {name} holds NaN"):
            check_numbers(block, good)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": "two", "data_offsets": [0, 8]},
        {"dtype": "F3", "shape": [2], "data_offsets": [0, 8]},
    ],
    ids=["another size", "negative", "no shape", "unknown dtype"],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    import json

    from workshop_gpu.worker.checkpoints import BadCheckpoint
    from workshop_gpu.worker.stored import stored_tensors

    text = json.dumps({"weight": entry}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(BadCheckpoint, match=r"a\.safetensors"):
        stored_tensors([path])


def test_memory_that_the_system_does_not_give_is_told_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from workshop_gpu.host import memfd
    from workshop_gpu.worker.host_copy import SharedCopy
    from workshop_gpu.worker.shared_memory import NoRoom

    half = 64 * 2**20

    def refuse_the_second_half(descriptor: int, start: int, size_bytes: int) -> None:
        if start >= half:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse_the_second_half)
    copy = SharedCopy([memfd.create(2 * half)], 2 * half, private=False)
    copy.begin()
    with pytest.raises(NoRoom, match="the weight pool has no memory left: No space left"):
        copy.wait_for_memory(0, 2 * half)
    copy.close()


@pytest.mark.parametrize("private", [False, True])
def test_a_block_in_segments_is_one_block_to_its_readers_and_writers(private: bool) -> None:
    import torch

    from workshop_gpu.host import memfd
    from workshop_gpu.worker.host_copy import SharedCopy

    step = 2 * 2**20
    size_bytes = 2 * step + 1000
    descriptors = [memfd.create(step), memfd.create(step), memfd.create(1000)]
    copies = [[os.dup(each) for each in descriptors], descriptors]
    writer, reader = (SharedCopy(each, size_bytes, private=private) for each in copies)
    content = torch.arange(size_bytes // 4, dtype=torch.int32).view(torch.uint8)
    writing = writer.begin()
    for start, stop in ((0, 100), (step - 7, step + 9), (100, step - 7), (step + 9, size_bytes)):
        writer.wait_for_memory(start, stop)
        writing[start:stop] = content[start:stop]
    assert reader.tensor().equal(content)
    across = bytearray(step + 20)
    reader.read(step - 10, memoryview(across))
    assert across == content[step - 10 : 2 * step + 10].numpy().tobytes()
    writer.close()
    reader.close()


def test_large_blocks_are_kept_in_segments_of_equal_size() -> None:
    from workshop_gpu.host import memfd
    from workshop_gpu.worker.protocol import segment_bytes

    for size_bytes in (1, 300 * 2**20, 5 * 2**30 + 12345):
        descriptors = memfd.create_segments(size_bytes)
        each_bytes = segment_bytes(size_bytes, len(descriptors))
        sizes = [os.fstat(descriptor).st_size for descriptor in descriptors]
        assert sum(sizes) == size_bytes
        assert all(size == each_bytes for size in sizes[:-1])
        assert len(sizes) <= 16
        memfd.close(descriptors)


def test_turns_are_handed_on_in_order_of_arrival() -> None:
    """Who has the turn and lets others pass has it back only after all who waited by then."""
    import threading

    from workshop_gpu.worker.turns import Turns

    turns = Turns()
    order: list[str] = []
    waiting = turns._waiting

    def take(name: str) -> None:
        with turns.turn():
            order.append(name)

    with turns.turn():
        threads = []
        for name in ("first", "second"):
            threads.append(threading.Thread(target=take, args=(name,)))
            threads[-1].start()
            while len(waiting) < len(threads):
                pass
        turns.let_others_pass()
        order.append("mine again")
    for thread in threads:
        thread.join()
    assert order == ["first", "second", "mine again"]
