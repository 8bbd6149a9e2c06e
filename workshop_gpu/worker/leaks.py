"""Does memory come back after each job? What stays allocated beyond the weights must not grow.

What is compared is the same set of models before and after: so whatever a placement keeps for
itself, workspaces of libraries and caches that fill once are not taken for a leak.
"""

import re
from collections import OrderedDict
from pathlib import Path

from workshop_gpu.worker.devices import Device

_IN_A_ROW = 3
"""Jobs after which too much was left: one of them may have left a cache that fills once."""
_MOST_SETS = 64
_LEAST_DRIFT_BYTES = 256_000_000
_DRIFT_FRACTION = 0.01
"""Of the device's memory, where that is more."""
_HOST_DRIFT_BYTES = 1_000_000_000
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)


def own_host_bytes(status: Path = Path("/proc/self/status")) -> int:
    """This process's own memory on the host, without files and the shared pool; 0: not known."""
    try:
        found = _ANONYMOUS.search(status.read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


class Drift:
    """One kind of memory: the least that was seen with each set of models, and what came since."""

    def __init__(self, tolerance_bytes: int) -> None:
        self._tolerance_bytes = tolerance_bytes
        self._least: OrderedDict[int, int] = OrderedDict()
        self._over = 0

    def after_job(self, weights_bytes: int, kept_bytes: int, known_bytes: int = 0) -> int:
        """Takes a reading; returns the bytes that have not come back, once that is sure, else 0.

        The models' bytes stand for the set of them. `known_bytes` may be in the reading or not,
        and are no leak where they are.
        """
        least = min(self._least.get(weights_bytes, kept_bytes), kept_bytes)
        self._least[weights_bytes] = least
        self._least.move_to_end(weights_bytes)
        while len(self._least) > _MOST_SETS:
            self._least.popitem(last=False)
        drift_bytes = kept_bytes - least - known_bytes
        self._over = self._over + 1 if drift_bytes > self._tolerance_bytes else 0
        return drift_bytes if self._over >= _IN_A_ROW else 0


class LeakCheck:
    """Both kinds of memory of this process."""

    def __init__(self, device: Device) -> None:
        self._device = device
        share_bytes = int(device.total_bytes * _DRIFT_FRACTION)
        self._on_device = Drift(max(_LEAST_DRIFT_BYTES, share_bytes))
        self._on_host = Drift(_HOST_DRIFT_BYTES)

    def after_job(self, weights_bytes: int, kept_bytes: int) -> tuple[int, int]:
        """Bytes that have not come back, on the device and on the host, where `kept_bytes` stay for
        later jobs. No model may be coming or going just now."""
        allocated_bytes = self._device.allocated_bytes() or weights_bytes
        return (
            self._on_device.after_job(weights_bytes, allocated_bytes - weights_bytes),
            self._on_host.after_job(weights_bytes, own_host_bytes(), kept_bytes),
        )
