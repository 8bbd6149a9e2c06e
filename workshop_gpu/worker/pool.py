"""The worker's blocks of weights: each once, whoever uses them, and where their bytes are.

A block is asked for by the name of its content. The server's pool has it, or gives memory to fill;
where there is no pool, a CPU's block is in the worker's own memory, and a card's is read from the
files again each time.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch

from workshop_gpu.worker.host_copy import HostCopy, OwnCopy, SharedCopy
from workshop_gpu.worker.pinning import Pinned
from workshop_gpu.worker.pool_link import Grant, Refusal
from workshop_gpu.worker.protocol import PartState


class PoolClient(Protocol):
    """The server's pool as a worker sees it. Only the loader's thread calls it."""

    def want(self, key: str, size_bytes: int) -> Grant | Refusal:
        """Ask for a block; waits for the answer."""

    def filled(self, key: str, digest: str) -> Grant | None:
        """The block is complete. A grant in return: the same bytes were there already."""

    def drop(self, key: str) -> None:
        """The worker uses the block no longer, or could not fill it."""


class NoPool:
    """What stands in where the host offers no pool."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def want(self, key: str, size_bytes: int) -> Grant | Refusal:
        return Refusal(self._reason)

    def filled(self, key: str, digest: str) -> Grant | None:
        return None

    def drop(self, key: str) -> None:
        pass


@dataclass(eq=False)
class Part:
    """A block in use. `host` is None where its bytes are read from the files each time.

    `users` are the open models that have it, `residents` those that stand on the device with it.
    """

    key: str
    size_bytes: int
    host: HostCopy | None
    complete: bool
    in_pool: bool
    digest: str = ""
    device: torch.Tensor | None = None
    pinned: Pinned | None = None
    told_as: str = ""
    """The name by which the host knows it on the device, where that is not its digest."""
    users: set[str] = field(default_factory=set)
    residents: set[str] = field(default_factory=set)


class Parts:
    """All blocks that open models use. Only the loader's thread touches them.

    `make_room` closes a model that is open and not on the device, and says whether it could.
    """

    def __init__(self, client: PoolClient, *, on_cpu: bool, make_room: Callable[[], bool]) -> None:
        self._client = client
        self._on_cpu = on_cpu
        self._make_room = make_room
        self._parts: dict[str, Part] = {}
        self._known_as: dict[str, str] = {}
        self.refusal = ""

    def get(self, key: str, size_bytes: int, user: str) -> Part:
        """The block of that content, to be filled if it is not complete. Raises NoRoom."""
        part = self._parts.get(self._known_as.get(key, key))
        if part is None:
            part = self._asked_for(key, size_bytes)
            if part.key == key:
                self._parts[key] = part
            else:
                self._known_as[key] = part.key
        part.users.add(user)
        return part

    def _asked_for(self, key: str, size_bytes: int) -> Part:
        if size_bytes == 0:
            return Part(key, 0, OwnCopy(0), complete=True, in_pool=False, digest=key)
        answer = self._client.want(key, size_bytes)
        while isinstance(answer, Refusal) and self._make_room():
            answer = self._client.want(key, size_bytes)
        if isinstance(answer, Grant):
            self.refusal = ""
            if twin := self._with_content(answer.digest):
                _close(answer)
                self._client.drop(key)
                return twin
            host = SharedCopy(answer.descriptors, size_bytes, private=self._on_cpu)
            complete = answer.state is PartState.COMPLETE
            digest = answer.digest or key
            return Part(key, size_bytes, host, complete, in_pool=True, digest=digest)
        self.refusal = answer.reason
        own = OwnCopy(size_bytes) if self._on_cpu else None
        return Part(key, size_bytes, own, complete=False, in_pool=False, digest=key)

    @property
    def pool_bytes(self) -> int:
        """What is in use of the server's pool."""
        return sum(part.size_bytes for part in self._parts.values() if part.in_pool)

    def filled(self, part: Part, digest: str, *, stays: bool = False) -> Part:
        """The block has all its bytes. Returns the block to use from now on.

        It is another one where the same bytes are there already: then this one is gone. One that
        `stays`, for models are bound to it, shares those bytes in host memory only.
        """
        part.complete = part.host is not None
        if not part.in_pool:
            return part
        part.digest = digest or part.key
        other = self._client.filled(part.key, part.digest)
        if other is None or part.host is None:
            return part
        twin = None if stays else self._with_content(part.digest, but=part)
        if twin is None:
            part.host.close()
            part.host = SharedCopy(other.descriptors, part.size_bytes, private=self._on_cpu)
            return part
        _close(other)
        twin.users |= part.users
        self._close(part)
        self._known_as[part.key] = twin.key
        return twin

    def as_large_as(self, part: Part) -> list[Part]:
        """The other blocks in use here that have as many bytes."""
        others = self._parts.values()
        return [each for each in others if each is not part and each.size_bytes == part.size_bytes]

    def do_without_copy(self, part: Part) -> None:
        """The block cannot be filled: it is read from its files whenever it is needed."""
        if part.host is not None:
            part.host.close()
        part.host, part.in_pool = None, False
        self._client.drop(part.key)

    def _with_content(self, digest: str, but: Part | None = None) -> Part | None:
        """A block in the pool with that content that is in use here."""
        for part in self._parts.values():
            if part is not but and part.in_pool and part.complete and part.digest == digest:
                return part
        return None

    def let_go(self, part: Part, user: str) -> None:
        """This model uses the block no longer; without any user it is closed."""
        part.users.discard(user)
        if not part.users:
            self._close(part)

    def _close(self, part: Part) -> None:
        if self._parts.get(part.key) is part:
            del self._parts[part.key]
        self._known_as = {k: v for k, v in self._known_as.items() if v != part.key}
        if part.pinned is not None:
            part.pinned.release()
            part.pinned = None
        part.device = None
        if part.host is not None:
            part.host.close()
            part.host = None
        if part.in_pool:
            self._client.drop(part.key)

    @property
    def resident_bytes(self) -> int:
        """What the blocks on the device take there; shared ones once."""
        # Any thread may ask while the loader's adds to it.
        return sum(part.size_bytes for part in list(self._parts.values()) if part.residents)


def _close(grant: Grant) -> None:
    for descriptor in grant.descriptors:
        os.close(descriptor)
