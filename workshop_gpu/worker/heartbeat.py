"""The worker's sign of life, from a thread of its own.

It goes on during a long step, a load, a synchronization with the card: all these let other threads
run. It ends when the process is stopped, or when a library call keeps the interpreter to itself for
good. A lane that makes no progress while the heart beats is the conductor's to notice.
"""

import threading
import time

from workshop_gpu.worker.link import Link
from workshop_gpu.worker.protocol import Heartbeat

INTERVAL_S = 1.0


def start(link: Link) -> None:
    """Beat until the process ends."""
    threading.Thread(target=_beat_for_ever, args=(link,), name="heartbeat", daemon=True).start()


def _beat_for_ever(link: Link) -> None:
    while True:
        time.sleep(INTERVAL_S)
        link.send(Heartbeat())
