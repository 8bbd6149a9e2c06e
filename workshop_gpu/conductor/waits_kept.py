"""The expected waits that people are told, between one forecast and the next.

To play the order through costs as much as all the rest of an event. So it is done with each event
only while few wait, and else with each tick (once a second): a job whose place changes meanwhile
keeps the wait that was foreseen for it, because whoever was before it still is; one that comes
between two others waits as long as the one behind it.
"""

from workshop_gpu.conductor.forecast import forecast, newcomers
from workshop_gpu.conductor.records import Job, State
from workshop_gpu.conductor.waits import Play, rounded

_FEW = 8
_AT_LATEST_S = 2.0
"""Where ticks are late, other events do it."""

_MOST_LANES = 16
"""Of many devices, so many are looked at: those that are free first."""


class KeptWaits:
    """What was foreseen last, for those who were at the front of the queue then."""

    def __init__(self) -> None:
        self._told_s: dict[str, float | None] = {}
        """By job, in the steps in which waits are told."""
        self._places = 0
        self._last_s: float | None = None
        """The wait of the last of those places."""
        self._played_s = float("-inf")
        self._play = Play(())

    def play(self, state: State, front: list[Job], ticks: bool, now: float) -> bool:
        """Foresees anew, if it is time; says whether it was."""
        if len(front) > _FEW and not ticks and now - self._played_s < _AT_LATEST_S:
            return False
        foreseen = forecast(state, front, now, _MOST_LANES)
        self._play = foreseen.play
        self._told_s = {
            job.request.job: None if wait_s is None else rounded(wait_s)
            for job, wait_s in zip(front, foreseen.waits_s, strict=True)
        }
        self._places, self._last_s = len(front), foreseen.last_s if front else None
        self._played_s = now
        return True

    def of_front(self, state: State, front: list[Job]) -> list[float | None]:
        """The waits of those who are at the front now, as they are told where they are foreseen."""
        told_s: list[float | None] = []
        behind_s = self.further_back(state, len(front))
        for job in reversed(front):
            foreseen_s = self._told_s.get(job.request.job, behind_s)
            if foreseen_s is not None:
                behind_s = foreseen_s
            told_s.append(foreseen_s)
        told_s.reverse()
        return told_s

    def of_newcomers(self, state: State) -> dict[str, float | None]:
        """How long one more job of each model would wait, as it is told."""
        behind_s = None
        if len(state.queue) > self._places:
            behind_s = self.further_back(state, len(state.queue) + 1)
        return newcomers(state, self._play, behind_s or 0.0)

    def further_back(self, state: State, position: int) -> float | None:
        """The wait of a job behind those at the front, as it is told: the mean work of those
        between, shared by the devices."""
        if self._last_s is None:
            return None
        between, line, lanes = position - self._places, state.queue.line, len(state.lanes)
        if between <= 0 or not lanes:
            return rounded(self._last_s)
        return rounded(self._last_s + between * line.work_s / len(line) / lanes)
