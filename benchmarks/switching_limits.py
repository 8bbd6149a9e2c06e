"""What the machine itself allows, for the switching benchmark.

`python -m benchmarks.switching_limits FOLDER cuda` prints a JSON object, bytes per second each:

- `disk`: all weights of a folder read from the disk by several threads into memory of ours;
- `bus`: pinned memory to the GPU, one large copy;
- `register`: a memfd filled by another process (so not mapped here yet) made known to CUDA.

On the CPU there is no bus: `bus` and `register` are 0.
"""

import argparse
import ctypes
import json
import mmap
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 16
BLOCK_BYTES = 8 * 2**20
BUS_BYTES = 2 * 2**30
REGISTER_BYTES = 4 * 2**30
ROUNDS = 5


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Measure the machine's own limits")
    parser.add_argument("folder", type=Path)
    parser.add_argument("device", choices=["cuda", "cpu"])
    options = parser.parse_args()
    files = weight_files(options.folder)
    leave_page_cache(files)
    found = {"disk": disk_speed(files), "bus": 0.0, "register": 0.0}
    if options.device == "cuda":
        found["bus"], found["register"] = bus_speed(), register_speed()
    print(json.dumps(found))
    return 0


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a pipeline folder, links to other folders followed."""
    return sorted(path.resolve() for path in folder.glob("*/*.safetensors"))


def leave_page_cache(files: list[Path]) -> None:
    """Have the next reading come from the disk. Files that a process has mapped stay."""
    for path in files:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_speed(files: list[Path]) -> float:
    """Bytes per second of all files together."""
    blocks = [
        (path, offset) for path in files for offset in range(0, path.stat().st_size, BLOCK_BYTES)
    ]
    started = time.perf_counter()
    own = threading.local()

    def read_block(block: tuple[Path, int]) -> int:
        # Into the same memory again and again: new memory would have to be cleared first.
        if not hasattr(own, "memory"):
            own.memory = bytearray(BLOCK_BYTES)
        path, offset = block
        with path.open("rb", buffering=0) as file:
            return os.preadv(file.fileno(), [own.memory], offset)

    with ThreadPoolExecutor(THREADS) as pool:
        total_bytes = sum(pool.map(read_block, blocks))
    return total_bytes / (time.perf_counter() - started)


def bus_speed() -> float:
    """Bytes per second from pinned memory to the GPU, the best of a few copies."""
    import torch

    source = torch.empty(BUS_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(source, device="cuda")
    best_s = float("inf")
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        best_s = min(best_s, time.perf_counter() - started)
    return BUS_BYTES / best_s


def register_speed() -> float:
    """Bytes per second at which CUDA takes in memory that another process has filled."""
    import torch

    descriptor = os.memfd_create("workshop-gpu-benchmark")
    os.ftruncate(descriptor, REGISTER_BYTES)
    block = os.urandom(BLOCK_BYTES)
    for offset in range(0, REGISTER_BYTES, BLOCK_BYTES):
        os.pwrite(descriptor, block, offset)  # fills without mapping, as another process would
    torch.cuda.init()
    with mmap.mmap(descriptor, REGISTER_BYTES) as memory:
        os.close(descriptor)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        started = time.perf_counter()
        runtime = torch.cuda.cudart()
        code = int(runtime.cudaHostRegister(address, REGISTER_BYTES, 0))
        taken_s = time.perf_counter() - started
        if code != 0:
            return 0.0
        runtime.cudaHostUnregister(address)
    return REGISTER_BYTES / taken_s


if __name__ == "__main__":
    sys.exit(main())
