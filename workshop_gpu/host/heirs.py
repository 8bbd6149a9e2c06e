"""What kernels leave when they end: nothing that they held, and to their notebook all the rest.

No kernel comes back, only a notebook does, with another one. That one is the heir of those of the
notebook's kernels that run no longer: it owns the jobs that they asked for, those too that still
wait or run, has their account, and what the instructor set for them holds for it.
"""

from collections.abc import Callable, Collection

from workshop_gpu.conductor import events
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.host.keeper import Keeper
from workshop_gpu.host.records import Participant


class Heirs:
    """`tell` hands a fact to the conductor, `policy` gives the rules as they are."""

    def __init__(
        self, keeper: Keeper, tell: Callable[[events.Event], None], policy: Callable[[], Policy]
    ) -> None:
        self._keeper = keeper
        self._tell = tell
        self._policy = policy

    def kernel_gone(self, kernel: str) -> None:
        """The kernel's process ended, or is about to start again."""
        self._tell(events.KernelGone(kernel))

    def inherit(self, heir: Participant, running: Collection[str]) -> bool:
        """A notebook's kernel is the heir of those that are not `running`. Says whether the rules
        are others now, which is not on disk yet. The jobs' records are given first, so that who
        hears of a job hears whose it is."""
        if not heir.notebook:
            return False
        rules = self._policy()
        ruled = [kernel for kernel, path in rules.notebooks.items() if path == heir.notebook]
        # An heir keeps the rules that it has: so of several those count that were set last.
        before = [kernel for kernel in reversed(ruled) if kernel not in running]
        for each in dict.fromkeys([*before, *self._keeper.inherit(heir, running)]):
            self._tell(events.ParticipantReplaced(each, heir.id, heir.kernel))
        return self._policy() != rules
