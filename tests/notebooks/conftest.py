"""Fixtures: a real server, and kernels that it starts."""

from collections.abc import Iterator

import pytest

from tests.notebooks.kernels import ServerKernel
from tests.serverprocess import ServerProcess


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process


@pytest.fixture
def kernel(server: ServerProcess) -> Iterator[ServerKernel]:
    with ServerKernel(server) as kernel:
        yield kernel
