"""The server's weight pool as a worker sees it: asking for parts over the socket."""

import os
from dataclasses import dataclass

from workshop_gpu.worker import protocol
from workshop_gpu.worker.link import Link

_LOST = "the memory's descriptors did not arrive: this process has too many files open"


@dataclass(frozen=True)
class Grant:
    """Memory for a part in the server's pool, in segments. Who gets it owns the descriptors.

    `digest` is of a complete part's content.
    """

    state: protocol.PartState
    descriptors: tuple[int, ...]
    size_bytes: int
    digest: str = ""


@dataclass(frozen=True)
class Refusal:
    """There is no memory for this part in the pool."""

    reason: str


class PoolLink:
    """Asks the pool and waits for its answer. Only one thread may use it, the one that loads."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def want(self, key: str, size_bytes: int) -> Grant | Refusal:
        """Ask for a part. Waits while another worker is filling the same."""
        self._link.send(protocol.PartWanted(key, size_bytes))
        return self._granted()

    def filled(self, key: str, digest: str) -> Grant | None:
        """The part is complete. Returns the memory to use from now on; None: it stays the same."""
        self._link.send(protocol.PartFilled(key, digest))
        answer = self._granted()
        return answer if isinstance(answer, Grant) else None

    def drop(self, key: str) -> None:
        """The worker uses the part no longer, or could not fill it."""
        self._link.send(protocol.PartDropped(key))

    def _granted(self) -> Grant | Refusal:
        answer, descriptors = self._link.pool_answers.get()
        if isinstance(answer, protocol.PartRefused):
            return Refusal(answer.reason)
        if len(descriptors) < answer.segments:
            for descriptor in descriptors:
                os.close(descriptor)
            self.drop(answer.key)
            return Refusal(_LOST)
        return Grant(answer.state, tuple(descriptors), answer.size_bytes, answer.digest)
