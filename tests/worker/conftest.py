"""A worker for each test file."""

import os
import warnings
from collections.abc import Iterator

import pytest

from tests.worker.worker_host import Host
from workshop_gpu.worker import protocol

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")


@pytest.fixture(scope="module")
def worker() -> Iterator[Host]:
    """A worker on the CPU that has said it is ready; it stays quiet to the end."""
    host = Host("--device", "cpu", "--total-bytes", "2000000000", "--threads", "1")
    host.expect(protocol.Ready, 180)
    yield host
    host.close()


@pytest.fixture
def quiet_libraries() -> Iterator[None]:
    """The libraries' advice is no error of ours when a test opens a pipeline itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
