"""What a kernel holds on the server is renewed by a daemon thread, as long as anybody uses it."""

import threading
import time
import weakref
from typing import Protocol

from workshop_gpu.client.errors import ClientClosed, ClientError, Lost
from workshop_gpu.client.faults import Faults

RETRY_S = 2.0


class Renewable(Protocol):
    """Something that ends unless it is renewed in time."""

    def renew(self) -> None:
        """Raises Lost where the server has ended it."""

    def give_up(self) -> None:
        """The server was silent for longer than it lives."""


def start(renewed: Renewable, over: threading.Event, ttl_s: float, name: str) -> threading.Thread:
    """Renew until `over` is set, until it is lost, or until nobody refers to it any more."""
    thread = threading.Thread(
        target=_renew, args=(weakref.ref(renewed), over, ttl_s), daemon=True, name=name
    )
    thread.start()
    return thread


def _renew(reference: "weakref.ref[Renewable]", over: threading.Event, ttl_s: float) -> None:
    """Renew at a third of the time to live; ask more often while the server is silent."""
    renewed_at, pause_s, faults = time.monotonic(), ttl_s / 3, Faults()
    while not over.wait(pause_s):
        renewed = reference()
        if renewed is None:
            return
        try:
            renewed.renew()
        except (Lost, ClientClosed):
            return
        except Exception as problem:
            if not isinstance(problem, ClientError):  # of ours: it must not end what lives on
                faults.say(problem)
            if time.monotonic() - renewed_at > ttl_s:
                renewed.give_up()
                return
            pause_s = min(RETRY_S, ttl_s / 3)
        else:
            renewed_at, pause_s = time.monotonic(), ttl_s / 3
        del renewed
