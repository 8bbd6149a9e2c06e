"""One device's account of all its bytes: does it fit?

Every byte has a named holder: `free_bytes` plus the sum over `holders()` is `total_bytes`, always.
Bytes are integers, so nothing leaks by rounding. `free_bytes` is negative where others took what
we had promised. Memory that a leaving slot has not given back yet counts as used. A component
that several models share counts once.
"""

from collections.abc import Collection, Iterable

from workshop_gpu.conductor.effects import Holder
from workshop_gpu.conductor.events import ForeignProcess, PartBytes
from workshop_gpu.conductor.foreign import Foreign
from workshop_gpu.conductor.kept_free import KeptFree
from workshop_gpu.conductor.lent import Lent
from workshop_gpu.conductor.shared_weights import SharedWeights


class Ledger:
    """The account of one device. It is told what happens; it decides nothing."""

    def __init__(self, margin_fraction: float, margin_max_bytes: int) -> None:
        self._margin_fraction = margin_fraction
        self._margin_max_bytes = margin_max_bytes
        self.total_bytes = 0
        self._foreign = Foreign()
        self._lent = Lent()
        self._weights = SharedWeights()
        self._kept = KeptFree()
        self._freeing: dict[str, int] = {}
        self._working: dict[str, int] = {}
        self._reserved: dict[str, int] = {}
        self._whole: str | None = None
        self._cache_bytes = 0
        self._free_bytes: int | None = None
        self._holders: tuple[Holder, ...] | None = None
        """Both are asked for at every event, and made anew after a change only."""
        self.changed_s = float("-inf")
        """When memory of ours was last given back: an older reading says nothing of it."""

    def open(self, total_bytes: int, foreign_bytes: int) -> None:
        """A worker stands ready on an empty device."""
        self.total_bytes = max(0, total_bytes)
        self._foreign.read(max(0, foreign_bytes - self._lent.held_bytes))
        self.clear()

    def clear(self) -> None:
        """All of ours is gone: the worker ended, and its memory with it. What other devices'
        workers hold here stays."""
        self._change()
        self._weights.clear()
        self._kept.clear()
        self._freeing.clear()
        self._working.clear()
        self._cache_bytes = 0

    def _change(self) -> None:
        self._free_bytes = self._holders = None

    # sums

    @property
    def margin_bytes(self) -> int:
        """What is never promised: the driver's context, fragmentation, the unforeseen."""
        return min(self._margin_max_bytes, int(self.total_bytes * self._margin_fraction))

    @property
    def most_bytes(self) -> int:
        """What the device could give if everything on it left, foreign memory included."""
        return self.total_bytes - self.margin_bytes

    @property
    def foreign_bytes(self) -> int:
        """What processes hold that are not ours, beyond what has been reserved for them."""
        return self._foreign.unreserved_bytes

    @property
    def reserved_bytes(self) -> int:
        """What is somebody's own."""
        whole = 0 if self._whole is None else max(0, self._left_bytes)
        return sum(self._reserved.values()) + whole

    @property
    def ours_bytes(self) -> int:
        """What our worker holds, or may take at any moment, by what we know."""
        coming_and_going = sum(self._freeing.values()) + sum(self._working.values())
        return self._weights.bytes + coming_and_going

    @property
    def free_bytes(self) -> int:
        if self._free_bytes is None:
            left = self._left_bytes
            self._free_bytes = left if self._whole is None else min(0, left)
        return self._free_bytes

    @property
    def _left_bytes(self) -> int:
        """What is free unless somebody has reserved the whole device."""
        held = self.foreign_bytes + self.ours_bytes + self._cache_bytes + self._lent.bytes
        return self.most_bytes - held - self._kept.bytes - sum(self._reserved.values())

    def holders(self) -> tuple[Holder, ...]:
        """Everybody who holds bytes, by kind and then in the order they came."""
        if self._holders is None:
            self._holders = tuple(holder for holder in self._named() if holder.bytes > 0)
        return self._holders

    def _named(self) -> list[Holder]:
        holders = [
            *self._weights.holders(),
            *(Holder("freeing", name, size) for name, size in self._freeing.items()),
            *(Holder("working", name, size) for name, size in self._working.items()),
            *self._kept.holders(),
            Holder("cache", "worker", self._cache_bytes),
            *self._lent.holders(),
            *(Holder("reservation", name, size) for name, size in self._reserved.items()),
        ]
        if self._whole is not None:
            holders.append(Holder("reservation", self._whole, self._left_bytes))
        holders += [Holder("foreign", name, size) for name, size in self._foreign.named()]
        holders.append(Holder("margin", "margin", self.margin_bytes))
        return holders

    # what the driver says

    def read(
        self,
        used_bytes: int,
        ours_bytes: int,
        processes: Iterable[ForeignProcess] | None = None,
        taken_s: float | None = None,
    ) -> bool:
        """Takes over the driver's reading; says whether the account changed.

        Both numbers are of one reading, so that our own changes cancel out. A reading that
        contradicts itself (a failed query often reads as 0) changes nothing: believing it would
        make memory look free that is not. What our worker holds beyond all we know of, and
        beyond the margin that is there for it, is its cache: free for nobody else.
        """
        self._change()
        nonsense = used_bytes < ours_bytes or ours_bytes < 0
        blind = ours_bytes == 0 and self._weights.bytes > 0
        if nonsense or blind or not self.total_bytes:
            return False
        before = self._foreign.named(), self._cache_bytes
        others_bytes = max(0, used_bytes - ours_bytes - self._lent.held_bytes)
        self._foreign.read(min(others_bytes, self.total_bytes), processes)
        if taken_s is None or taken_s > self.changed_s:
            self._cache_bytes = max(0, ours_bytes - self.ours_bytes - self.margin_bytes)
        return before != (self._foreign.named(), self._cache_bytes)

    # weights

    def set_weights(self, model: str, size_bytes: int, parts: Collection[PartBytes] = ()) -> None:
        """The weights of a slot: estimated when its load begins, measured when it has ended.
        What `parts` do not account for is the model's own."""
        self._change()
        self._weights.set(model, size_bytes, parts)

    def weights_bytes(self, model: str) -> int:
        """All bytes that the model has here, shared ones included."""
        if model in self._weights:
            return self._weights.of(model)
        return self._freeing.get(model, 0)

    def present_bytes(self, parts: Collection[PartBytes]) -> int:
        """How much of these parts is here already, so that a load need not bring it."""
        return self._weights.present_bytes(parts)

    def leaving_bytes(self, models: Collection[str], wanted: Collection[PartBytes] = ()) -> int:
        """What comes free if all these models leave: not what they share with others that stay,
        nor what is `wanted` again by the one who comes."""
        freeing = sum(self._freeing.get(model, 0) for model in models)
        return self._weights.leaving_bytes(models, wanted) + freeing

    def drop_weights(self, model: str) -> None:
        """A load failed and left nothing behind."""
        self._change()
        self._weights.drop(model)
        self._kept.drop(model)

    def start_freeing(self, model: str) -> None:
        """The slot leaves; its bytes count until they have come back."""
        self._change()
        self._freeing[model] = self.leaving_bytes((model,))
        self._weights.drop(model)
        self._kept.drop(model)

    def freed(self, model: str) -> int:
        """The leaving slot's bytes came back; says how many the account had for it."""
        self._change()
        return self._freeing.pop(model, 0)

    # what stays free beside models

    def keep_free(self, model: str, size_bytes: int) -> None:
        """So much stays free beside the model, from its load on until it leaves."""
        self._change()
        self._kept.set(model, size_bytes)

    def kept_beyond(self, size_bytes: int, but: Collection[str] = ()) -> int:
        """What others than these models want to stay free, beyond so many bytes."""
        return self._kept.beyond(size_bytes, but)

    def free_for(self, model: str, kept_bytes: int) -> int:
        """What is free for a model that wants `kept_bytes` to stay free beside it, these included:
        what it wants and what others want do not add up."""
        return self.free_bytes + self._kept.bytes - self._kept.beyond(kept_bytes, (model,))

    def freed_bytes(
        self,
        models: Collection[str],
        wanted: Collection[PartBytes] = (),
        model: str = "",
        kept_bytes: int = 0,
    ) -> int:
        """What more is free for that model if all these leave: their weights, and what no longer
        has to stay free for their sake."""
        before = self._kept.beyond(kept_bytes, (model,))
        after = self._kept.beyond(kept_bytes, (model, *models))
        return self.leaving_bytes(models, wanted) + before - after

    # working memory

    def commit(self, job: str, working_bytes: int) -> None:
        """Promises working memory to a job, from the order to run it until its end."""
        self._change()
        self._working[job] = max(0, working_bytes)

    def release(self, job: str) -> None:
        self._change()
        self._working.pop(job, None)

    # memory for models of other devices

    def lend(
        self, device: str, model: str, size_bytes: int, parts: Collection[PartBytes] = ()
    ) -> None:
        """Promises bytes to a model of another device (0: it has none here any more), of which
        `parts` are here once for all models of that device."""
        self._change()
        self._lent.promise(device, model, size_bytes, parts)

    @property
    def lends(self) -> bool:
        """Whether a model of another device has anything here."""
        return self._lent.bytes > 0

    def lent_bytes(self, device: str, model: str) -> int:
        """What a model of another device was promised here, with what it shares."""
        return self._lent.to(device, model)

    def called_back_bytes(self, device: str, *models: str) -> int:
        """What comes free here once these models have nothing here any more."""
        return self._lent.leaving_bytes(device, models)

    def lent_to_others_bytes(self, device: str, model: str, parts: Collection[PartBytes]) -> int:
        """How much of these parts is here already for other models of that device."""
        return self._lent.present_bytes(device, model, parts)

    def neighbour_holds(self, device: str, size_bytes: int) -> bool:
        """What that device's worker holds here by its own count; whether that is news."""
        news = self._lent.holds(device, size_bytes)
        if news:
            self._change()
        return news

    def neighbour_ended(self, device: str) -> bool:
        """That device's worker ended; whether it had anything here."""
        self._change()
        return self._lent.ended(device)

    # reservations

    def reserve(self, reservation: str, kernel: str | None, size_bytes: int | None) -> None:
        """The room is somebody's from here on (None: all that is left, whatever that becomes).
        What the kernel's processes hold counts against it, not beside it; so does what strangers
        come to hold where nobody knows whose it is (see `foreign.py`)."""
        self._change()
        self.unreserve(reservation)
        if size_bytes is None:
            self._whole = reservation
        else:
            self._reserved[reservation] = size_bytes
        self._foreign.cover(reservation, kernel, size_bytes)

    def coverable_bytes(self, kernel: str | None) -> int:
        """What the kernel's processes hold already, so that a reservation would count it once."""
        return self._foreign.unreserved_of(kernel)

    def unreserve(self, reservation: str) -> None:
        self._change()
        self._reserved.pop(reservation, None)
        if self._whole == reservation:
            self._whole = None
        self._foreign.uncover(reservation)
