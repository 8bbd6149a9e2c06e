"""The thread that draws has all cores; threads beside it have one each."""

import subprocess
import sys

COUNTS = """
import threading, torch
from workshop_gpu.worker.cores import share_out

share_out(3)
counts = []
for _ in range(2):
    beside = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
    beside.start()
    beside.join()
torch.ones(1 << 20).sum()
print(torch.get_num_threads(), *counts)
"""


def test_the_thread_that_draws_has_all_cores_and_each_other_thread_one() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, check=True, text=True)
    assert ran.stdout.split() == ["3", "1", "1"]
