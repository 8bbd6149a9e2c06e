"""What one event costs the conductor, with few and with thousands of waiting jobs.

`python -m benchmarks.conductor`: microseconds per event (the median, and the mean in brackets) for
10 to 10,000 waiting jobs of 1,000 participants on 1 to 64 GPUs. All GPUs are busy, each with two
of ten models; the jobs are of all ten, two sizes, and take five seconds each. Each kind of event is
measured while the number of waiting jobs stays what it is. Nothing is drawn: only the conductor
works, on a clock that goes as fast as the GPUs would let it.
"""

import gc
import sys
from itertools import count
from statistics import median
from time import perf_counter

from benchmarks.report import Row, at_most, publish, shown
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor
from workshop_gpu.conductor.settings import Settings

WAITING = (10, 100, 1_000, 10_000)
GPUS = (1, 8, 64)
PARTICIPANTS = 1_000
MODELS = 10
BAR_US = 200.0
GROWTH_BAR = 2.0
"""10,000 waiting jobs against 100: twice the digits, so twice the cost would be log n."""

_GB = 1_000_000_000
_RUN_S = 5.0
_TICK_S = 1.0
_SIZES = (512 * 512, 1024 * 1024)
_KINDS = ("submit", "start", "drawn", "finish", "tick", "cancel")


class Classroom:
    """A conductor whose GPUs are all busy, with so many waiting jobs."""

    def __init__(self, waiting: int, gpus: int) -> None:
        self._numbers = count()
        self._now = 0.0
        self._ticked_s = 0.0
        self._round_s = _RUN_S / gpus
        """After so long the next GPU is done."""
        self._running: list[str] = []
        self._waiting: dict[str, None] = {}
        self._wanted = waiting
        self._answers: list[events.Event] = []
        self.times_s: dict[str, list[float]] = {kind: [] for kind in _KINDS}
        names = tuple(f"gpu{number}" for number in range(gpus))
        self._conductor = Conductor(Settings(queue_limit=waiting + gpus + 1), names)
        facts = [
            events.ModelFacts(f"model-{number}", explicit_bytes=30 * _GB)
            for number in range(MODELS)
        ]
        self._tell(events.CatalogueChanged(tuple(facts)))
        for name in names:
            self._tell(events.DeviceReady(name, 80 * _GB))
        self._answer()
        self._fill()

    def run(self, rounds: int) -> None:
        """Each round has one event of each kind; jobs that begin are replaced by new ones."""
        for _ in range(rounds):
            self._now += self._round_s
            if self._now - self._ticked_s >= _TICK_S:
                self._ticked_s = self._now
                self._timed("tick", events.Tick())
            self._timed("submit", self._submitted())
            waiting = list(self._waiting)
            self._timed("cancel", events.JobCancelled(waiting[len(waiting) // 2]))
            if self._running:
                job = self._running.pop(0)
                self._timed("drawn", events.JobDrawn(job, _RUN_S, 2 * _GB))
                self._timed("finish", events.JobFinished(job))
                self._timed("start", events.JobStarted(self._running[-1]))
            self._fill()

    def _timed(self, kind: str, event: events.Event) -> None:
        """The event alone is timed; what workers answer to its orders comes after it."""
        begin_s = perf_counter()
        new = self._conductor.handle(event, self._now)
        self.times_s[kind].append(perf_counter() - begin_s)
        self._take(new)
        if isinstance(event, events.JobCancelled):
            self._waiting.pop(event.job, None)
        self._answer()

    def _fill(self) -> None:
        while len(self._waiting) < self._wanted:
            self._tell(self._submitted())
            self._answer()

    def _submitted(self) -> events.JobSubmitted:
        number = next(self._numbers)
        job = f"job-{number}"
        self._waiting[job] = None
        # The steps spread participants over models and sizes without a pattern in either.
        return events.JobSubmitted(
            job=job,
            participant=f"participant-{number * 7 % PARTICIPANTS}",
            kernel=f"kernel-{number * 7 % PARTICIPANTS}",
            model=f"model-{number * 13 // 3 % MODELS}",
            steps=28,
            pixels=_SIZES[number % 2],
        )

    def _tell(self, event: events.Event) -> None:
        self._take(self._conductor.handle(event, self._now))

    def _answer(self) -> None:
        """Workers do at once what they were told to."""
        while self._answers:
            self._tell(self._answers.pop(0))

    def _take(self, new: list[effects.Effect]) -> None:
        for order in new:
            match order:
                case effects.LoadModel(device, model):
                    self._answers.append(events.SlotLoaded(device, model, 30 * _GB, 6.0))
                case effects.EvictModel(device, model):
                    self._answers.append(events.SlotEvicted(device, model, 30 * _GB))
                case effects.RunJob(_, job):
                    self._waiting.pop(job, None)
                    self._running.append(job)
                case _:
                    pass


def measure(waiting: int, gpus: int, rounds: int) -> dict[str, float]:
    """Median microseconds per event of each kind."""
    room = Classroom(waiting, gpus)
    room.run(rounds // 10)
    for times_s in room.times_s.values():
        times_s.clear()
    gc.collect()
    room.run(rounds)
    return {kind: median(times_s) * 1e6 for kind, times_s in room.times_s.items()}


def main() -> int:
    """Measures all sizes and publishes the table; 1 where a bar is missed."""
    rounds = 100 if "--quick" in sys.argv else 500
    rows: list[Row] = []
    dearest: dict[tuple[int, int], float] = {}
    for gpus in GPUS:
        for waiting in WAITING:
            for kind, cost_us in measure(waiting, gpus, rounds).items():
                name = f"{kind}, {waiting:,} waiting, {gpus} GPUs"
                bar = waiting == WAITING[-1]
                rows.append(
                    at_most(name, cost_us, "µs", BAR_US) if bar else shown(name, cost_us, "µs")
                )
                key = (waiting, gpus)
                dearest[key] = max(dearest.get(key, 0.0), cost_us)
        growth = dearest[10_000, gpus] / dearest[100, gpus]
        name = f"dearest event, 10,000 waiting against 100, {gpus} GPUs"
        rows.append(at_most(name, growth, "times", GROWTH_BAR))
    return publish("conductor", rows, "Median of each kind of event; the conductor alone.")


if __name__ == "__main__":
    sys.exit(main())
