"""What processes that are not ours hold of a device, by their names.

A kernel that has reserved room uses it with a process of its own: up to what it reserved that
process is no surprise, and is not counted a second time.
"""

from collections.abc import Iterable

from workshop_gpu.conductor.events import ForeignProcess

NAMELESS = "other processes"


class Foreign:
    """The driver's figures for everybody else, and who of them has reserved room."""

    def __init__(self) -> None:
        self._total_bytes = 0
        self._processes: tuple[ForeignProcess, ...] = ()
        self._covers: dict[str, tuple[str | None, int | None]] = {}
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
            self._processes = tuple(processes)
        self._count()

    def cover(self, reservation: str, kernel: str | None, size_bytes: int | None) -> None:
        """The kernel's processes may hold so many bytes (None: any number)."""
        self._covers[reservation] = (kernel, size_bytes)
        self._count()

    def uncover(self, reservation: str) -> None:
        self._covers.pop(reservation, None)
        self._count()

    def _count(self) -> None:
        """Each process holds what the driver says, together never more than the total."""
        left_bytes = self._total_bytes
        covered = self._covered_bytes()
        named: dict[str, int] = {}
        kernels: dict[str, int] = {}
        for process in self._processes:
            held = min(max(0, process.bytes), left_bytes)
            left_bytes -= held
            own = 0
            if process.kernel is not None:
                own = min(held, covered.get(process.kernel, 0))
                covered[process.kernel] = covered.get(process.kernel, 0) - own
                kernels[process.kernel] = kernels.get(process.kernel, 0) + held - own
            if held > own:
                named[process.name] = named.get(process.name, 0) + held - own
        if left_bytes:
            named[NAMELESS] = named.get(NAMELESS, 0) + left_bytes
        self._named, self._kernels = named, kernels

    def _covered_bytes(self) -> dict[str, int]:
        covered: dict[str, int] = {}
        for kernel, size_bytes in self._covers.values():
            if kernel is not None:
                most = self._total_bytes if size_bytes is None else size_bytes
                covered[kernel] = covered.get(kernel, 0) + most
        return covered
