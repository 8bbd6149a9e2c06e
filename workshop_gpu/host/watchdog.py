"""Notices a worker that gives no sign of life.

It counts looks, not time: a server that was itself held up (the machine slept, the event loop was
busy) has at most one look to make up for, and then first reads what has come meanwhile.
"""

import anyio

_LOOKS = 8


class Watchdog:
    """`heard` is called for every sign of life."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._heard = False

    def heard(self) -> None:
        self._heard = True

    async def silence(self) -> None:
        """Returns once nothing was heard for `limit_s` seconds; never where that is 0."""
        if self._limit_s <= 0:
            await anyio.sleep_forever()
        silent = 0
        while silent < _LOOKS:
            self._heard = False
            await anyio.sleep(self._limit_s / _LOOKS)
            silent = 0 if self._heard else silent + 1
