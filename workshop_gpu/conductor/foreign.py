"""What processes that are not ours hold of a device, by their names.

Who has reserved room uses it with processes of their own: up to what was reserved that is no
surprise, and is not counted a second time. A kernel's reservation covers the kernel's processes.

Where nobody can tell whose memory it is, a reservation covers what strangers have come to hold
since it was granted: where the driver names no processes (in a container), and where a program
has reserved that is no kernel of ours. What strangers held before the grant stays foreign. If
less is held than before, those whom reservations cover are taken to have given it back, and what
a reservation may leave behind at its end is foreign: in doubt bytes count twice, never not at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from workshop_gpu.conductor.events import ForeignProcess

NAMELESS = "other processes"


@dataclass(slots=True)
class _Cover:
    """What a granted reservation may explain; `size_bytes` None is a whole device."""

    kernel: str | None
    size_bytes: int | None
    before_bytes: int
    """What strangers held when it was granted, as far as they still do."""


class Foreign:
    """The driver's figures for everybody else, and who of them has reserved room."""

    def __init__(self) -> None:
        self._total_bytes = 0
        self._processes: tuple[ForeignProcess, ...] | None = None
        self._covers: dict[str, _Cover] = {}
        self._strangers_bytes = 0
        self._named: dict[str, int] = {}
        self._kernels: dict[str, int] = {}

    @property
    def unreserved_bytes(self) -> int:
        """What they hold beyond their own reservations."""
        return sum(self._named.values())

    def unreserved_of(self, kernel: str | None) -> int:
        """What the kernel's processes hold beyond its reservations."""
        return 0 if kernel is None else self._kernels.get(kernel, 0)

    def named(self) -> tuple[tuple[str, int], ...]:
        """Bytes beyond reservations, by the processes' names; the rest is nobody's by name."""
        return tuple(self._named.items())

    def read(self, total_bytes: int, processes: Iterable[ForeignProcess] | None = None) -> None:
        """What all of them hold; the processes as they were where none are told."""
        self._total_bytes = total_bytes
        if processes is not None:
            came = {process.pid: place for place, process in enumerate(self._processes or ())}
            ordered = sorted(processes, key=lambda process: came.get(process.pid, len(came)))
            self._processes = tuple(ordered)
        self._count()

    def cover(self, reservation: str, kernel: str | None, size_bytes: int | None) -> None:
        """The kernel's processes, or strangers from here on, may hold so many bytes (None: any
        number)."""
        self._covers[reservation] = _Cover(kernel, size_bytes, self._strangers_bytes)
        self._count()

    def uncover(self, reservation: str) -> None:
        """All that it may have explained is foreign, also where it may be another's."""
        ended = self._covers.get(reservation)
        if ended is None:
            return
        left_bytes = self._explained_by(ended, self._strangers_bytes)
        earlier = True
        for each in self._covers.values():
            if each is ended:
                earlier = False
            elif earlier:
                each.before_bytes += left_bytes
            else:  # what came between the two grants was its own before that of others
                each.before_bytes = max(each.before_bytes, ended.before_bytes + left_bytes)
        del self._covers[reservation]
        self._count()

    def _count(self) -> None:
        """Each process holds what the driver says, together never more than the total."""
        left_bytes = self._total_bytes
        covered = self._covered_kernels()
        named: dict[str, int] = {}
        kernels: dict[str, int] = {}
        strangers: dict[str, int] = {}
        for process in self._processes or ():
            held = min(max(0, process.bytes), left_bytes)
            left_bytes -= held
            own = 0
            if process.kernel is not None:
                own = min(held, covered.get(process.kernel, 0))
                covered[process.kernel] = covered.get(process.kernel, 0) - own
                kernels[process.kernel] = kernels.get(process.kernel, 0) + held - own
            elif not process.is_spare:
                strangers[process.name] = strangers.get(process.name, 0) + held
                continue
            if held > own:
                named[process.name] = named.get(process.name, 0) + held - own
        if left_bytes:
            strangers[NAMELESS] = strangers.get(NAMELESS, 0) + left_bytes
        self._strangers_bytes = sum(strangers.values())
        for name, held in self._unexplained(strangers):
            named[name] = named.get(name, 0) + held
        self._named, self._kernels = named, kernels

    def _covered_kernels(self) -> dict[str, int]:
        covered: dict[str, int] = {}
        for each in self._covers.values():
            if each.kernel is not None:
                most = self._total_bytes if each.size_bytes is None else each.size_bytes
                covered[each.kernel] = covered.get(each.kernel, 0) + most
        return covered

    def _unexplained(self, strangers: dict[str, int]) -> list[tuple[str, int]]:
        """What strangers hold beyond reservations: theirs who came last are explained first."""
        own_bytes = 0
        for each in reversed(self._covers.values()):
            each.before_bytes = min(each.before_bytes, self._strangers_bytes)
            own_bytes += self._explained_by(each, self._strangers_bytes - own_bytes)
        left: list[tuple[str, int]] = []
        for name, held in reversed(strangers.items()):
            own = min(held, own_bytes)
            own_bytes -= own
            if held > own:
                left.append((name, held - own))
        return left[::-1]

    def _explained_by(self, cover: _Cover, strangers_bytes: int) -> int:
        """How much of what strangers hold the reservation may explain. A kernel's is not among
        them where processes have names; beside a whole device nothing is free anyhow."""
        by_name = cover.kernel is not None and self._processes is not None
        if by_name or cover.size_bytes is None:
            return 0
        return min(cover.size_bytes, max(0, strangers_bytes - cover.before_bytes))
