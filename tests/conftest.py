"""For all tests: no network, few threads."""

import os

from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says nothing where another file's tests run beside it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
