"""`python -m tests.faults.soak --jobs 2000`: does anything grow?

Jobs of several models that do not fit together, one after the other by several people; memory, open
files, threads and the event stream's delay are read after a warm-up, now and then, and at the end.
The server keeps so few pictures that it forgets old jobs all the time, as one that has run for long
does: what it keeps of jobs is no drift.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from tests.api.people import Person
from tests.faults.pictures import WISHES
from tests.serverprocess import ServerProcess

PEOPLE = 4
READINGS = 20
MOST_DRIFT = 0.02
KEEP_GB = 0.001
"""Pictures of some 160 jobs: the warm-up is over long after the first was forgotten."""
_MB = 1_000_000


@dataclass(frozen=True)
class Reading:
    """The server and its workers at one moment; delays of the stream in seconds."""

    server_mb: float
    workers_mb: float
    files: int
    threads: int
    delay_s: float


def own_mb(process: psutil.Process) -> float:
    """Its memory but for what it shares with others: the pool is no drift."""
    memory = process.memory_info()
    return (memory.rss - memory.shared) / _MB


def read(server: ServerProcess, person: Person) -> Reading:
    """The median of some readings: memory breathes."""
    process = psutil.Process(server.pid)
    family = [process, *process.children()]

    def median(measure: Callable[[], float]) -> float:
        return statistics.median(measure() for _ in range(READINGS))

    return Reading(
        server_mb=median(lambda: own_mb(process)),
        workers_mb=median(lambda: sum(own_mb(each) for each in family[1:])),
        files=round(median(lambda: sum(each.num_fds() for each in family))),
        threads=round(median(lambda: sum(each.num_threads() for each in family))),
        delay_s=median(lambda: delay_s(person)),
    )


def delay_s(person: Person) -> float:
    """From taking a hold to reading of the change on the stream."""
    events = person.events()
    next(events)
    started_s = time.monotonic()
    hold = person.hold(WISHES[0].model, ttl_s=30.0)
    next(events)
    took_s = time.monotonic() - started_s
    person.http.delete(f"api/holds/{hold['id']}")
    events.close()  # type: ignore[attr-defined]
    return took_s


def draw(people: list[Person], jobs: int, first: int) -> None:
    """So many jobs, as many at once as there are people."""
    waiting: list[tuple[Person, str]] = []
    for number in range(first, first + jobs):
        if len(waiting) == len(people):
            who, job = waiting.pop(0)
            ended = who.ended(job)
            if ended["state"] != "done":
                raise RuntimeError(f"a job failed: {ended}")
        who = people[number % len(people)]
        waiting.append((who, who.submit(**WISHES[number % len(WISHES)].body())["id"]))
    for who, job in waiting:
        who.ended(job)


def rows(before: Reading, after: Reading) -> list[tuple[str, float, float]]:
    return [
        (name, float(getattr(before, name)), float(getattr(after, name)))
        for name in Reading.__dataclass_fields__
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--warm-up", type=int, default=400)
    parser.add_argument("--look-every", type=int, default=200, help="print a reading so often")
    options = parser.parse_args()
    args = (
        "--WorkshopGPU.worker_threads=1",
        "--WorkshopGPU.patience_s=2",
        f"--WorkshopGPU.keep_gb={KEEP_GB}",
    )
    with ServerProcess(("cpu:45MB",), args) as server:
        people = [Person(server, f"person {number}") for number in range(PEOPLE)]
        started_s = time.monotonic()
        draw(people, options.warm_up, 0)
        read(server, people[0])  # looking has its own first time
        before = read(server, people[0])
        print(options.warm_up, before, flush=True)
        for first in range(0, options.jobs, options.look_every):
            several = min(options.look_every, options.jobs - first)
            draw(people, several, options.warm_up + first)
            after = read(server, people[0])
            print(options.warm_up + first + several, after, flush=True)
        took_s = time.monotonic() - started_s
        for person in people:
            person.http.close()
    print(f"{options.jobs} jobs after {options.warm_up} to warm up, {took_s:.0f} s")
    print(f"{'':12}{'before':>12}{'after':>12}{'drift':>9}")
    worst = 0.0
    for name, first, last in rows(before, after):
        drift = last / first - 1 if first else 0.0
        worst = max(worst, drift if name != "delay_s" else 0.0)
        print(f"{name:12}{first:12.3f}{last:12.3f}{drift:9.1%}")
    return 1 if worst > MOST_DRIFT else 0


if __name__ == "__main__":
    sys.exit(main())
