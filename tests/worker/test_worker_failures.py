"""What goes wrong in the worker becomes a value that keeps no tensor, and no bad picture passes."""

import gc
import subprocess
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.worker.worker_host import ANSWER_S
from workshop_gpu.conductor import errors
from workshop_gpu.worker.drawing import Picture, check_picture
from workshop_gpu.worker.failures import Broken, OutOfMemory, attempt
from workshop_gpu.worker.protocol import ModelSource


class Activation:
    """Something large in a frame of a call that fails."""


def failing(seen: list[Any], error: Exception) -> None:
    """Raises deep inside, with an activation in the frame."""
    activation = Activation()
    seen.append(weakref.ref(activation))
    raise error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        ValueError("shapes do not match"),
    ],
    ids=["torch", "driver", "other"],
)
def test_what_failed_lets_go_of_its_tensors_before_anything_is_tried_again(
    error: Exception,
) -> None:
    gc.disable()  # a cycle that only the collector finds would keep them just as well
    try:
        seen: list[Any] = []
        kept_error = [error]
        outcome = attempt(lambda: failing(seen, kept_error.pop()))
        error.__traceback__ = None  # the test's own reference
        assert isinstance(outcome, OutOfMemory | Broken)
        assert seen[0]() is None
    finally:
        gc.enable()


def test_memory_that_runs_out_while_decoding_is_an_error_and_no_picture() -> None:
    def decode() -> Picture:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.50 GiB.")

    assert attempt(decode) == OutOfMemory(int(3.5 * 2**30))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "Triton Error [CUDA]: out of memory",
    ],
)
def test_libraries_that_find_no_memory_for_themselves_have_run_out_of_memory(message: str) -> None:
    assert attempt(lambda: failing([], RuntimeError(message))) == OutOfMemory(0)


@pytest.mark.parametrize(
    ("message", "by_driver"),
    [
        ("CUDA error: resource already mapped", True),
        ("CUDA error: unspecified launch failure", True),
        ("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", True),
        ("Triton Error [CUDA]: an illegal memory access was encountered", True),
        ("CUDA error: invalid configuration argument", False),
        ("CUDA error: no kernel image is available for execution on the device", False),
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", False),
        ("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`", False),
        ("mat1 and mat2 shapes cannot be multiplied (77x768 and 1024x320)", False),
    ],
)
def test_what_the_driver_did_is_told_from_what_it_was_asked_for(
    message: str, by_driver: bool
) -> None:
    outcome = attempt(lambda: failing([], RuntimeError(message)))
    assert isinstance(outcome, Broken)
    assert outcome.by_driver is by_driver
    assert message in outcome.problem


def executed(code: str) -> "subprocess.CompletedProcess[str]":
    """A process of its own, which the code may end."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_S)


def test_a_worker_whose_driver_failed_in_an_order_ends_though_the_card_answers() -> None:
    code = (
        "from workshop_gpu.worker.devices import CpuDevice; "
        "from workshop_gpu.worker.failures import Broken; "
        "from workshop_gpu.worker.moving import give_back; "
        "give_back(CpuDevice(10**9), Broken('as asked', by_driver=False)); print('goes on'); "
        "give_back(CpuDevice(10**9), Broken('CUDA error: 208', by_driver=True)); print('not here')"
    )
    ended = executed(code)
    assert (ended.returncode, ended.stdout) == (5, "goes on\n")
    assert "the card's driver failed: CUDA error: 208" in ended.stderr


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["pixels", "latents"])
def test_a_picture_that_is_not_a_number_somewhere_is_an_error(bad: float, where: str) -> None:
    pixels = np.linspace(0.0, 1.0, 8 * 8 * 3, dtype=np.float32).reshape(8, 8, 3)
    latents = torch.zeros(1, 4, 1, 1)
    source = ModelSource("sd", "diffusers", "/nowhere")
    model: Any = SimpleNamespace(source=source, dtypes={"vae": torch.float16})
    check_picture(model, Picture(pixels, latents))
    if where == "pixels":
        pixels[3, 4, 1] = bad
    else:
        latents[0, 2, 0, 0] = bad
    with pytest.raises(errors.GenerationFailed, match=r"NaN.*float16"):
        check_picture(model, Picture(pixels, latents))


def test_a_thread_that_breaks_takes_the_worker_with_it() -> None:
    code = (
        "import threading; from workshop_gpu.worker import __main__ as worker; "
        "worker._say_where_it_ends(); "
        "thread = threading.Thread(target=lambda: 1 / 0, name='moves'); "
        "thread.start(); thread.join(); print('goes on')"
    )
    ended = executed(code)
    assert ended.returncode == 6
    assert ended.stdout == ""
    assert "its thread moves broke: ZeroDivisionError" in ended.stderr
