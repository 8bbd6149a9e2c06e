"""Which compiler makes blocks faster on a device, and why none does. Imports no torch."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

AUTO, OFF = "auto", "off"
INDUCTOR, EAGER = "inductor", "eager"
COMPILERS = (AUTO, OFF, INDUCTOR, EAGER)
"""What a worker can be told. Inductor writes kernels; "eager" keeps a block's graph as it was
traced, which is no faster, needs no compiler of C, and shows all the rest at work."""

COMPILERS_OWN = ("inductor", "triton")
"""Folders beside the compiled blocks where torch and triton keep what they make."""

_C_COMPILERS = ("cc", "gcc", "clang")


def backend_of(compiler: str, device: str) -> str:
    """The backend that this setting means for a "cuda" or a "cpu" device; "" for none. By itself
    the product compiles for cards only: on a CPU it takes minutes."""
    if compiler == AUTO:
        return INDUCTOR if device == "cuda" and not why_not() else ""
    return "" if compiler == OFF else compiler


def why_not(environment: Mapping[str, str] = os.environ) -> str:
    """Why blocks cannot be compiled for a card here; "" where they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if not environment.get("CC") and not any(map(shutil.which, _C_COMPILERS)):
        return "there is no C compiler (cc, gcc or clang), which triton needs"
    return ""


def compilers_folders(base: str) -> dict[str, str]:
    """The environment that keeps the compilers to this folder; nothing without one.

    A block is compiled by one process, with no helpers: it can then be halted as a whole.
    """
    if not base:
        return {}
    inductor, triton = (str(Path(base) / name) for name in COMPILERS_OWN)
    return {
        "TORCHINDUCTOR_CACHE_DIR": inductor,
        "TRITON_CACHE_DIR": triton,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
