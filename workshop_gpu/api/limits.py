"""How much one participant may ask of the server, so that nobody's loop slows everybody down."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from workshop_gpu.api.errors import TooManyRequests, TooManyStreams

_BURST_S = 5.0
"""So many seconds' requests may come at once."""
_MOST_KNOWN = 1000
"""Beyond so many participants, those who have their whole burst again are forgotten."""


@dataclass
class _Account:
    left: float
    at_s: float


class Visitors:
    """Requests and event streams by participant. A limit of 0 is none."""

    def __init__(
        self,
        requests_per_s: float,
        streams: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests_per_s = requests_per_s
        self._most_streams = streams
        self._now = now
        self._accounts: dict[str, _Account] = {}
        self._streams: Counter[str] = Counter()

    def request(self, participant: str) -> None:
        """Counts a request. Raises TooManyRequests; such a one counts as well, a little, so that
        who does not stop is not served in between."""
        rate = self._requests_per_s
        if rate <= 0:
            return
        now, most = self._now(), rate * _BURST_S
        account = self._accounts.setdefault(participant, _Account(most, now))
        account.left = min(most, account.left + (now - account.at_s) * rate) - 1.0
        account.at_s = now
        if len(self._accounts) > _MOST_KNOWN:
            self._forget(now, most)
        if account.left < 0.0:
            account.left = max(account.left, -rate)
            raise TooManyRequests(rate, -account.left / rate)

    def _forget(self, now: float, most: float) -> None:
        rate = self._requests_per_s
        for participant, account in list(self._accounts.items()):
            if account.left + (now - account.at_s) * rate >= most:
                del self._accounts[participant]

    @contextmanager
    def stream(self, participant: str) -> Iterator[None]:
        """While it is entered it counts as one of the participant's streams. Raises
        TooManyStreams."""
        if 0 < self._most_streams <= self._streams[participant]:
            raise TooManyStreams(self._most_streams)
        self._streams[participant] += 1
        try:
            yield
        finally:
            self._streams[participant] -= 1
            if not self._streams[participant]:
                del self._streams[participant]
