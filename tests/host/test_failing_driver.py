"""The card's driver fails amid a picture and answers again: the worker is replaced all the same."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.faults.points.sitecustomize import DRIVER_FAILS
from tests.host.test_placements import ROOMY, drawn, runtime_on
from workshop_gpu.conductor.states import SlotState

POINTS = Path(__file__).parents[1] / "faults" / "points"


def test_a_driver_that_fails_costs_a_worker_and_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a driver that failed computes afterwards is not to be trusted, and no answer to people:
    the job goes on with a new worker."""
    path = os.pathsep.join(filter(None, [str(POINTS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    ends: list[str] = []

    async def scenario() -> None:
        runtime = runtime_on(ROOMY, tmp_path)
        (supervisor,) = runtime._supervisors.values()
        told = supervisor._on_end
        supervisor._on_end = lambda device, end: (ends.append(end.reason), told(device, end))
        async with runtime.running():
            await runtime.catalogue_read()
            _, before = await drawn(runtime)
            pid = supervisor.pid
            assert pid is not None
            os.kill(pid, DRIVER_FAILS)
            _, after = await drawn(runtime)
            assert (after == before).all()
            assert supervisor.pid not in (None, pid)
            (slot,) = runtime.snapshot().slots
            assert slot.state is SlotState.READY

    asyncio.run(scenario())
    (reason,) = ends
    assert "the card's driver failed" in reason
    assert "resource already mapped" in reason
