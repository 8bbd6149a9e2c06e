"""Without room on the disk there are no logs, but there are workers."""

import asyncio
import subprocess
import sys

from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.worker_process import WorkerProcess
from workshop_gpu.worker.link import EXIT_BROKEN_STREAM


def test_a_worker_whose_log_cannot_be_opened_starts_without_one(tmp_path, monkeypatch):
    # It ends by itself, however long a busy machine takes to start it.
    monkeypatch.setattr("workshop_gpu.host.worker_process._END_TIMEOUT_S", 120.0)
    in_the_way = tmp_path / "logs"
    in_the_way.write_text("a file where the folder should be, as good as a full disk")

    async def run():
        device = DeviceConfig("cpu:0", "CPU", "", 10**9)
        worker = await WorkerProcess.start(device, in_the_way)
        how = await worker.end()
        return how, worker.last_lines()

    assert asyncio.run(run()) == ("exit code 0", ())


def test_a_worker_that_cannot_say_why_it_ends_ends_all_the_same():
    code = "from workshop_gpu.worker.link import end_process; end_process(3, 'reason')"
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([sys.executable, "-c", code], stderr=full, check=False)
    assert ended.returncode == EXIT_BROKEN_STREAM
