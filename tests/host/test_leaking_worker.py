"""A real worker that leaks memory of the host: told, and replaced between jobs."""

import asyncio
import os
import re
import signal

from PIL import Image

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor import effects
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.protocol import GenerateParams

POINT = """
import signal, sys

lost = []

if "workshop_gpu.worker" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, lambda *_: lost.append(b"x" * 1_200_000_000))
"""
QUICK = GenerateParams(prompt="a circle", seed=7, steps=1, guidance=1.0, width=64, height=64)
MODEL = "shapes-dit-turbo"
MOST_JOBS = 12
"""The first is the floor, three are over it; a reading that meets a load does not count."""


def test_a_worker_that_leaks_is_told_of_and_replaced_and_no_job_is_lost(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(POINT)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    device = DeviceConfig("cpu:0", "CPU", "", 10**9)
    settings = RuntimeSettings((device,), tmp_path, threads=1)
    runtime = Runtime(settings, Catalogue(tmp_path / "none.toml", default_dtype="float32"))
    (supervisor,) = runtime._supervisors.values()
    ends, told = [], supervisor._on_end
    supervisor._on_end = lambda device, end: (ends.append(end.reason), told(device, end))

    async def drawn():
        job = await runtime.submit(Participant("ann", "Ann"), MODEL, QUICK)
        done = await runtime.finished(job.id)
        assert done.view.state == "done", done.view.error
        with Image.open(runtime.images.path(job.id, 0)) as picture:
            return picture.tobytes()

    async def scenario():
        async with runtime.running():
            await runtime.catalogue_read()
            first, _ = await drawn(), await drawn()
            os.kill(supervisor.pid, signal.SIGUSR2)
            for _ in range(MOST_JOBS):
                last = await drawn()
                if ends:
                    break
            log = runtime.events.after(0)
            notices = [each.text for _, each in log if isinstance(each, effects.Notice)]
            return first, last, list(ends), notices

    first, last, reasons, notices = asyncio.run(asyncio.wait_for(scenario(), 500))
    assert last == first, "a new worker draws the same"
    assert len(reasons) == 1
    assert re.match(r"a planned restart: 1\.[1-5] GB on the host", reasons[0]), reasons
    assert any("does not give all memory back" in text for text in notices)
    assert not any("safe mode" in text for text in notices)
