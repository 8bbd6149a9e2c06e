"""One worker for the tests that leave it as they found it: ready, with an empty device."""

import gc
import os
import warnings
from collections.abc import Iterator

import pytest

from tests.worker.worker_host import MODELS, START_S, Host, float32_bytes
from workshop_gpu.worker import protocol

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")


@pytest.fixture(scope="session")
def worker() -> Iterator[Host]:
    """A worker on the CPU with room for each shipped model once."""
    host = Host("--device", "cpu", "--total-bytes", str(room_bytes()), "--threads", "1")
    host.expect(protocol.Ready, START_S)
    yield host
    host.close()


def room_bytes() -> int:
    """The pretended VRAM: the shipped models in float32 and a little for their buffers."""
    return sum(float32_bytes(model) for model in MODELS) + 6_000_000


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What only Python's search for cycles would free stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def quiet_libraries() -> Iterator[None]:
    """The libraries' advice is no error of ours when a test opens a pipeline itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
