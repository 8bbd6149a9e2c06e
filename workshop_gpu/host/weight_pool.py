"""The weight pool: the one copy of each part of the models' weights in this machine's memory.

Workers ask for parts by the name of their content and get shared memory, full or to be filled.
What no worker uses stays for the next time, until room is needed; a worker's end costs nothing.
LoRAs lie in their workers' own memory, and count and leave as the parts do.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from workshop_gpu.conductor.errors import gigabytes
from workshop_gpu.host import host_memory, memfd
from workshop_gpu.host.host_memory import HostMemory
from workshop_gpu.worker import protocol
from workshop_gpu.worker.protocol import PartState
from workshop_gpu.worker.protocol_loras import ForgetLoras, KeptLora, LorasKept

_SHARE_OF_AVAILABLE = 0.5
_FLOOR_SHARE = 0.05
_MOST_FLOOR_BYTES = 4_000_000_000
"""What stays free for everything else: a share of the memory, at most so much."""
_MOST_NAMES = 32
"""By which one part is remembered; a file that is touched again and again gets new ones."""


class PoolUser(Protocol):
    """A worker, as the pool sees it."""

    def send(self, order: protocol.ToWorker, *descriptors: int) -> None:
        """Sends an answer; the descriptors stay the pool's.

        Raises OSError where they cannot be passed on.
        """


@dataclass(eq=False)
class _Part:
    """Memory in segments, a memfd each.

    `names` are the keys under which it was asked for, and its digest. `models` are those that it
    was last loaded for. `filler` is set until it is complete. `lora` is the name of one, which has
    no segments: it is in its keeper's memory.
    """

    descriptors: list[int]
    size_bytes: int
    filler: PoolUser | None
    names: list[str]
    digest: str = ""
    uses: set[tuple[PoolUser, str]] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    lora: str = ""


@dataclass(frozen=True)
class PoolPart:
    """A complete part, for people: which models it was loaded for, how many workers use it, and
    the name of a LoRA ("": it is weights of a model)."""

    name: str
    size_bytes: int
    models: tuple[str, ...]
    workers: int
    lora: str = ""


@dataclass(frozen=True)
class PoolState:
    """The pool, for people. `used_bytes` counts unfinished parts too; `problem` is "" or says
    why there is no pool, or why a worker's weights are not all in it."""

    budget_bytes: int
    used_bytes: int
    problem: str
    parts: tuple[PoolPart, ...]


class WeightPool:
    """Owns the memory. All methods run on the event loop's thread and return at once.

    `budget_bytes` None: half of the memory that is available now. 0: no pool.
    """

    def __init__(
        self,
        budget_bytes: int | None = None,
        *,
        log: logging.Logger | None = None,
        read_memory: Callable[[], HostMemory] = host_memory.read,
    ) -> None:
        memory = read_memory()
        self._read_memory = read_memory
        self._log = log or logging.getLogger("workshop_gpu")
        self._floor_bytes = floor_bytes(memory)
        self._budget_bytes = usual_budget_bytes(memory) if budget_bytes is None else budget_bytes
        self._problem = why_no_pool(self._budget_bytes)
        self._complete: dict[str, _Part] = {}
        """By each of its names; those that were dropped last are at the end."""
        self._in_use: dict[tuple[PoolUser, str], _Part] = {}
        self._waiting: dict[str, list[tuple[PoolUser, int]]] = {}
        self._loras: dict[tuple[PoolUser, str], _Part] = {}
        """By the worker that keeps it and its key there."""
        self._troubles: dict[PoolUser, str] = {}
        """Why a worker's last load was not from the pool; "" if it was."""
        self._asked_to_free = False

    @property
    def problem(self) -> str:
        """Why weights do not all come from the pool, in a sentence; "" where they do, or where it
        is switched off."""
        because = self._why_not() if self._budget_bytes > 0 else ""
        return f"Weights do not all come from this machine's memory: {because}." if because else ""

    def _why_not(self) -> str:
        return self._problem or next(filter(None, self._troubles.values()), "")

    def state(self) -> PoolState:
        """What is in the pool now."""
        return PoolState(
            self._budget_bytes if not self._problem else 0,
            self._used_bytes(),
            self._why_not(),
            tuple(
                PoolPart(
                    part.digest,
                    part.size_bytes,
                    tuple(sorted(part.models)),
                    len({id(user) for user, _ in part.uses}),
                    part.lora,
                )
                for part in self._kept()
            ),
        )

    # From the workers

    def handle(self, user: PoolUser, report: protocol.PoolReport) -> None:
        """Answers a worker."""
        match report:
            case protocol.PartWanted(key, size_bytes):
                self._wanted(user, key, size_bytes)
            case protocol.PartFilled(key, digest):
                self._filled(user, key, digest)
            case protocol.PartDropped(key):
                self._dropped(user, key)
            case LorasKept(loras):
                self._keeps(user, loras)

    def loaded(self, user: PoolUser, report: protocol.Loaded) -> None:
        """A model stands ready on a worker."""
        self._troubles[user] = report.no_pool
        for name in (part.part for part in report.parts):
            part = self._complete.get(name) or self._in_use.get((user, name))
            if part is not None:
                part.models.add(report.model)

    def release(self, user: PoolUser) -> None:
        """The worker has ended: what it used is free, what it had not filled is thrown away."""
        self._troubles.pop(user, None)
        for key, waiting in list(self._waiting.items()):
            self._waiting[key] = [entry for entry in waiting if entry[0] is not user]
        for owner, key in [use for use in self._in_use if use[0] is user]:
            self._dropped(owner, key)
        self._keeps(user, ())

    # From the clock

    def relieve(self) -> None:
        """Gives memory back where the machine runs short of it."""
        if not self._complete:
            return
        missing_bytes = self._floor_bytes - self._read_memory().available_bytes
        if missing_bytes <= 0:
            self._asked_to_free = False
            return
        freed_bytes = self._evict_unused(missing_bytes)
        if freed_bytes:
            self._log.warning(
                "This machine's memory runs short: %s of weights left the pool.",
                gigabytes(freed_bytes),
            )
        if freed_bytes < missing_bytes and not self._asked_to_free:
            self._asked_to_free = True
            self._ask_to_free(missing_bytes - freed_bytes)

    def close(self) -> None:
        """Lets go of all memory; workers that still use some keep that until they end."""
        for part in {id(part): part for part in (*self._kept(), *self._in_use.values())}.values():
            memfd.close(part.descriptors)
        self._complete.clear()
        self._in_use.clear()
        self._waiting.clear()
        self._loras.clear()
        self._problem = "the server is ending"

    # Parts

    def _wanted(self, user: PoolUser, key: str, size_bytes: int) -> None:
        self._dropped(user, key)  # who asks again has it no longer
        there = self._complete.get(key)
        if there is not None and there.size_bytes == size_bytes:
            self._grant_complete(user, key, there)
        elif self._another_fills(user, key) and not self._fills_something(user):
            # A worker that waits while others wait for what it fills itself might wait for ever:
            # such a worker fills a copy of its own, which is thrown away in the end.
            self._waiting.setdefault(key, []).append((user, size_bytes))
        else:
            self._grant_empty(user, key, size_bytes)

    def _grant_complete(self, user: PoolUser, key: str, part: _Part) -> None:
        self._use(user, key, part)
        self._send(user, key, PartState.COMPLETE, part)

    def _send(self, user: PoolUser, key: str, state: PartState, part: _Part) -> None:
        segments = len(part.descriptors)
        granted = protocol.PartGranted(key, state, part.size_bytes, part.digest, segments)
        try:
            user.send(granted, *part.descriptors)
        except OSError as error:
            self._dropped(user, key)
            reason = f"the memory could not be passed on: {error.strerror}"
            user.send(protocol.PartRefused(key, reason))

    def _grant_empty(self, user: PoolUser, key: str, size_bytes: int) -> None:
        if refusal := self._problem or self._why_no_room(size_bytes):
            user.send(protocol.PartRefused(key, refusal))
            # Too late for this load, whose worker may free what is its own; not for the next.
            self._ask_to_free(size_bytes, but=user)
            return
        try:
            descriptors = memfd.create_segments(size_bytes)
        except OSError as error:
            reason = f"the system refused shared memory: {error.strerror}"
            user.send(protocol.PartRefused(key, reason))
            return
        part = _Part(descriptors, size_bytes, user, [key])
        self._use(user, key, part)
        self._send(user, key, PartState.EMPTY, part)

    def _filled(self, user: PoolUser, key: str, digest: str) -> None:
        part = self._in_use.get((user, key))
        if part is None or part.filler is not user:
            # A worker that reports what it never got: there is nothing to keep of it.
            user.send(protocol.PartRefused(key, "this worker was not filling it"))
            return
        there = self._complete.get(digest)
        if there is not None and there.size_bytes == part.size_bytes:
            part.uses.clear()
            self._throw_away(part)
            self._name(there, key)
            self._grant_complete(user, key, there)
        else:
            part.filler, part.digest = None, digest
            self._seal(part)
            part.names.clear()
            self._name(part, digest)
            self._name(part, key)
            self._grant_complete(user, key, part)
        self._serve_waiting(key)

    def _seal(self, part: _Part) -> None:
        try:
            for number, descriptor in enumerate(part.descriptors):
                part.descriptors[number] = memfd.sealed(descriptor)
        except OSError as error:  # it can be used all the same
            self._log.debug("A part of the pool could not be sealed: %s", error.strerror)

    def _dropped(self, user: PoolUser, key: str) -> None:
        part = self._in_use.pop((user, key), None)
        if part is None:
            return
        part.uses.discard((user, key))
        if part.filler is user:
            self._throw_away(part)
            self._serve_waiting(key)
        elif not part.names and not part.uses:
            self._throw_away(part)
        else:
            for name in part.names:  # to the young end of the order
                self._complete[name] = self._complete.pop(name)

    def _serve_waiting(self, key: str) -> None:
        for user, size_bytes in self._waiting.pop(key, []):
            self._wanted(user, key, size_bytes)

    def _use(self, user: PoolUser, key: str, part: _Part) -> None:
        self._in_use[user, key] = part
        part.uses.add((user, key))

    def _name(self, part: _Part, name: str) -> None:
        """From now on the part is found by this name too, and no other part by it."""
        before = self._complete.get(name)
        if before is part:
            return
        if before is not None:
            before.names.remove(name)
            if not before.names and not before.uses:
                self._throw_away(before)
        part.names.append(name)
        self._complete[name] = part
        if len(part.names) > _MOST_NAMES:
            del self._complete[part.names.pop(1)]

    def _throw_away(self, part: _Part) -> None:
        if part.filler is None:
            for name in part.names:
                del self._complete[name]
        for user, key in [each for each, lora in self._loras.items() if lora is part]:
            del self._loras[user, key]
            user.send(ForgetLoras((key,)))
        memfd.close(part.descriptors)

    def _another_fills(self, user: PoolUser, key: str) -> bool:
        return any(
            part.filler is not None and owner is not user
            for (owner, name), part in self._in_use.items()
            if name == key
        )

    def _fills_something(self, user: PoolUser) -> bool:
        return any(part.filler is user for part in self._in_use.values())

    # LoRAs

    def _keeps(self, user: PoolUser, loras: Sequence[KeptLora]) -> None:
        """All that the worker keeps; what is too much leaves, as soon as no job draws with it."""
        there = {lora.key for lora in loras}
        for owner, key in [each for each in self._loras if each[0] is user]:
            if key not in there:
                self._lora_gone(owner, key)
        for lora in loras:
            if lora.in_use:
                self._use(user, _lora_name(lora.key), self._lora(user, lora))
            elif (user, lora.key) in self._loras:
                self._dropped(user, _lora_name(lora.key))
            else:
                self._lora(user, lora)
        self._evict_unused(self._used_bytes() - self._budget_bytes)

    def _lora(self, user: PoolUser, lora: KeptLora) -> _Part:
        part = self._loras.get((user, lora.key))
        if part is None:
            part = _Part([], lora.size_bytes, None, [], models={lora.model}, lora=lora.lora)
            self._loras[user, lora.key] = part
            self._name(part, f"{_lora_name(lora.key)} of {id(user)}")
        return part

    def _lora_gone(self, user: PoolUser, key: str) -> None:
        part = self._loras.pop((user, key))
        self._in_use.pop((user, _lora_name(key)), None)
        for name in part.names:
            del self._complete[name]

    # Room

    def _ask_to_free(self, size_bytes: int, but: PoolUser | None = None) -> None:
        for user in {id(user): user for user, _ in self._in_use}.values():
            if user is not but:
                user.send(protocol.FreePool(size_bytes))

    def _why_no_room(self, size_bytes: int) -> str:
        """Makes room for a part; "" where there is room now."""
        if size_bytes > self._budget_bytes:
            return (
                f"a part of {gigabytes(size_bytes)} is larger than the weight pool "
                f"({gigabytes(self._budget_bytes)})"
            )
        too_much_bytes = self._used_bytes() + size_bytes - self._budget_bytes
        unused_bytes = sum(part.size_bytes for part in self._kept() if not part.uses)
        if too_much_bytes > unused_bytes:
            return (
                f"the weight pool is full: {gigabytes(self._used_bytes() - unused_bytes)} of "
                f"{gigabytes(self._budget_bytes)} are in use, {gigabytes(size_bytes)} are needed"
            )
        self._evict_unused(too_much_bytes)
        missing_bytes = size_bytes + self._promised_bytes() + self._floor_bytes
        missing_bytes -= self._read_memory().available_bytes
        if missing_bytes > 0 and self._evict_unused(missing_bytes) < missing_bytes:
            return (
                f"this machine's memory is full: {gigabytes(size_bytes)} are needed, "
                f"{gigabytes(missing_bytes)} more than it can spare"
            )
        return ""

    def _evict_unused(self, wanted_bytes: int) -> int:
        """Throws away what nobody uses, the longest unused first. Returns the bytes."""
        freed_bytes = 0
        for part in list(self._kept()):
            if freed_bytes >= wanted_bytes:
                break
            if not part.uses:
                self._throw_away(part)
                freed_bytes += part.size_bytes
        return freed_bytes

    def _used_bytes(self) -> int:
        parts = {id(part): part for part in (*self._kept(), *self._in_use.values())}
        return sum(part.size_bytes for part in parts.values())

    def _promised_bytes(self) -> int:
        """What unfinished parts will still take."""
        filling = [part for part in self._in_use.values() if part.filler is not None]
        return sum(
            max(0, part.size_bytes - sum(map(memfd.taken_bytes, part.descriptors)))
            for part in filling
        )

    def _kept(self) -> Iterable[_Part]:
        """The complete parts, of those that nobody uses the longest unused first."""
        return {id(part): part for part in self._complete.values()}.values()


def _lora_name(key: str) -> str:
    """What no part of a model is called."""
    return f"lora {key}"


def usual_budget_bytes(memory: HostMemory) -> int:
    """How much the pool may take where nobody says it."""
    return int(memory.available_bytes * _SHARE_OF_AVAILABLE)


def floor_bytes(memory: HostMemory) -> int:
    """How much memory stays free for everything else."""
    return min(int(memory.total_bytes * _FLOOR_SHARE), _MOST_FLOOR_BYTES)


def why_no_pool(budget_bytes: int) -> str:
    """Why a server with this budget would have no pool here; "" where it has."""
    if budget_bytes <= 0:
        return "it is switched off (WorkshopGPU.pool_gb is 0)"
    return memfd.why_not()
