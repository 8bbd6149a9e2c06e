"""Whatever happens, in whatever order: the conductor's promises hold.

`HYPOTHESIS_PROFILE=long pytest tests/conductor/test_properties.py -s` runs ten times as many
examples, with other dice each time; `quick` a tenth. The examples are split over all cores.
"""

import os
import secrets
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conductor.crowd import Crowd

EXAMPLES = {"quick": 200, "ci": 2_000, "long": 20_000}
STEPS = 100
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")


def run_part(number: int, examples: int) -> tuple[int, int]:
    """Some of the examples, in a process of its own; says how many examples and steps it ran."""
    Crowd.examples = Crowd.steps = 0
    run_state_machine_as_test(
        seed(number)(Crowd),
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return Crowd.examples, Crowd.steps


@pytest.mark.timeout(7200 if PROFILE == "long" else 600)
def test_promises_hold_whatever_happens() -> None:
    cores = len(os.sched_getaffinity(0))
    parts = 4 * cores
    first = secrets.randbelow(1_000_000) if PROFILE == "long" else 1
    wanted = -(-EXAMPLES[PROFILE] // parts)
    with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        done = list(pool.map(run_part, range(first, first + parts), [wanted] * parts))
    examples, steps = (sum(figures) for figures in zip(*done, strict=True))
    print(f"{examples} examples, {steps} steps, seeds from {first}")
    assert examples >= EXAMPLES[PROFILE]
    assert steps >= 0.8 * examples * STEPS
