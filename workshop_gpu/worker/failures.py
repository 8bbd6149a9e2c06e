"""Exceptions become structured errors here, and let go of the tensors in their tracebacks.

A traceback keeps every frame of the failed call alive, and with it the activations that may be
the very reason for running out of memory. So nothing is handled inside an `except` block: `attempt`
keeps a report without references and returns; the caller frees memory and answers after that.
"""

import logging
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from workshop_gpu.conductor import errors
from workshop_gpu.worker.checkpoints import BadCheckpoint
from workshop_gpu.worker.drawing import JobCancelled
from workshop_gpu.worker.shared_memory import NoRoom

Result = TypeVar("Result")

_log = logging.getLogger(__name__)
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIGNS_OF_NO_MEMORY = (
    "can't allocate memory",  # the CPU's allocator
    "CUDA error: out of memory",  # the driver, as when it loads a kernel
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # its first handle needs memory, too
    "CUDNN_STATUS_ALLOC_FAILED",
    "Triton Error [CUDA]: out of memory",
)
"""How those say it that raise no class of its own."""
_SIGNS_OF_THE_DRIVER = (
    "CUDA error:",
    "CUDA driver error:",
    "CUBLAS_STATUS_",
    "CUDNN_STATUS_",
    "Triton Error [CUDA]:",
)
_SIGNS_OF_THE_REQUEST = (
    "invalid argument",
    "invalid configuration argument",
    "no kernel image is available",
    "operation not supported",
    "STATUS_NOT_SUPPORTED",
    "STATUS_INVALID_VALUE",
    "STATUS_BAD_PARAM",
)
"""With these the driver refuses what it was asked for, and would again."""
_LONGEST_PROBLEM = 600
"""Characters of a library's message that go to people; the whole is in the worker's log."""


@dataclass(frozen=True)
class Success(Generic[Result]):
    """The attempt gave this."""

    value: Result


@dataclass(frozen=True)
class OutOfMemory:
    """The attempt ran out of memory; `needed_bytes` is the allocation that failed, 0: unknown."""

    needed_bytes: int


@dataclass(frozen=True)
class Cancelled:
    """The attempt was cancelled."""


@dataclass(frozen=True)
class Broken:
    """The attempt raised something that names no kind of its own.

    `by_driver`: the card's driver or one of its libraries failed by itself. It may well answer
    again, but what is computed in this process from now on cannot be trusted.
    """

    problem: str
    by_driver: bool = False


Outcome = Success[Result] | OutOfMemory | Cancelled | Broken | errors.ErrorReport


def attempt(action: Callable[[], Result]) -> Outcome[Result]:
    """Run the action; whatever it raises comes back as a value that refers to no tensor."""
    try:
        return Success(action())
    except JobCancelled:
        return Cancelled()
    except errors.WorkshopError as error:
        return error.report()
    except (BadCheckpoint, NoRoom) as problem:
        return Broken(str(problem))
    except torch.OutOfMemoryError as error:
        return OutOfMemory(_bytes_asked_for(str(error)))
    except Exception as error:
        message = str(error)
        if isinstance(error, MemoryError) or any(sign in message for sign in _SIGNS_OF_NO_MEMORY):
            return OutOfMemory(_bytes_asked_for(message))
        # As text: a log record with the exception in it would keep the traceback's tensors.
        _log.error("an order failed\n%s", traceback.format_exc())
        return Broken(_for_people(type(error).__name__, message), _is_the_drivers(message))


def _is_the_drivers(message: str) -> bool:
    return any(sign in message for sign in _SIGNS_OF_THE_DRIVER) and not any(
        sign in message for sign in _SIGNS_OF_THE_REQUEST
    )


def _for_people(name: str, message: str) -> str:
    text = " ".join(message.split())
    if len(text) > _LONGEST_PROBLEM:
        text = text[:_LONGEST_PROBLEM] + "…"
    return f"{name}: {text}" if text else name


def _bytes_asked_for(message: str) -> int:
    """The size in torch's "Tried to allocate 2.00 GiB" or the CPU's "allocate 1234 bytes"."""
    if found := re.search(r"allocate ([\d.]+) (KiB|MiB|GiB)", message):
        return int(float(found[1]) * _UNITS[found[2]])
    if found := re.search(r"allocate (\d+) bytes", message):
        return int(found[1])
    return 0
