"""How much of this machine's memory this server may still use, containers' limits included."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

_ROOT = Path("/")


class HostMemory(msgspec.Struct, frozen=True):
    """`total_bytes` the server may use at most, and what of it is free or can be freed at once: the
    page cache is, also what was read more than once, as model files are."""

    total_bytes: int
    available_bytes: int


class _Limit(msgspec.Struct, frozen=True):
    limit_bytes: int
    free_bytes: int


def read(root: Path = _ROOT) -> HostMemory:
    """The machine's memory and the control groups' limits above this process, whichever is less.

    `root` is where /proc and /sys lie; the machine's own figures come from psutil. Takes less
    than a millisecond.
    """
    machine = psutil.virtual_memory()
    limits = list(_limits(root))
    return HostMemory(
        total_bytes=min([machine.total, *(limit.limit_bytes for limit in limits)]),
        available_bytes=min([machine.available, *(limit.free_bytes for limit in limits)]),
    )


def _limits(root: Path) -> Iterator[_Limit]:
    """Of every group that this process is in, and of the groups around it."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        groups = root / "sys/fs/cgroup"
        if number == "0" and not controllers:
            names = ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            groups = groups / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        inside = groups / path.strip().lstrip("/")
        # In a container the path may be one of the world outside: then the top is ours.
        for folder in (inside, *inside.parents):
            if folder.is_relative_to(groups):
                yield from _limit(folder, *names)


def _limit(folder: Path, limit_name: str, used_name: str, prefix: str) -> Iterator[_Limit]:
    limit, used = _text(folder / limit_name).strip(), _text(folder / used_name).strip()
    if not limit.isdigit() or not used.isdigit():  # "max", or no such group
        return
    cached = 0
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in (f"{prefix}inactive_file", f"{prefix}active_file") and value.isdigit():
            cached += int(value)
    free_bytes = int(limit) - int(used) + cached
    yield _Limit(int(limit), max(0, free_bytes))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
