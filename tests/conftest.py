"""For all tests: no network, few threads, and sums that are the same wherever the numbers lie."""

import os

from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # as the worker has it

# How long an example takes says nothing where another file's tests run beside it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
