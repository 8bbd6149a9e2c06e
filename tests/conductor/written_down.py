"""All that a conductor knows, as bytes: they are equal only where nothing has changed."""

import importlib
import io
import pickle
import pkgutil
from collections.abc import Iterator
from enum import Enum

from workshop_gpu import conductor as package
from workshop_gpu.conductor.conductor import Conductor


def written_down(conductor: Conductor) -> bytes:
    """To be compared with what was written in this process before."""
    written = io.BytesIO()
    pickler = pickle.Pickler(written, pickle.HIGHEST_PROTOCOL)
    pickler.memo = _written_before.memo
    pickler.dump(conductor)
    return written.getvalue()


def _constants() -> Iterator[object]:
    """The package's classes, and the members of its enumerations."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type):
                yield each
                yield from each if issubclass(each, Enum) else ()


# They are two fifths of the work, as each is looked up by its name; so a number stands for them.
_written_before = pickle.Pickler(io.BytesIO(), pickle.HIGHEST_PROTOCOL)
_written_before.dump(list(_constants()))
