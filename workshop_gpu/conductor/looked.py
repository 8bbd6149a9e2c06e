"""What looks have found out about a device, until something changes there.

Most events change one device, and looks ask all of them. So the answers that only the device itself
can change are kept until it is touched (see `State.touch`, through which every change of a device,
its slots, who holds or pins them, and which other copies there are goes). What depends on who
waits, or on the time, is never kept.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workshop_gpu.conductor.states import SlotState

if TYPE_CHECKING:
    from workshop_gpu.conductor.records import Device, Slot, State


@dataclass(frozen=True, slots=True)
class Looked:
    """Bytes of one device, and the slots that somebody may take from it."""

    free_bytes: int
    at_rest_bytes: int
    """What would be free if what runs there had ended."""
    ever_bytes: int
    """What would be free if all that may ever leave had left, too."""
    ever_kept_bytes: int
    """What would have to stay free then, beside the models that stay."""
    movable: tuple["Slot", ...]
    """Ready, and kept by no hold or pin."""

    def ever_for(self, kept_bytes: int) -> int:
        """What would be free then for one that wants so much to stay free beside it, these bytes
        included."""
        return self.ever_bytes + min(kept_bytes, self.ever_kept_bytes)


def look_at(state: "State", device: "Device") -> Looked:
    """The answers for the device: found out now, or known already."""
    known = state.looked.get(device.name)
    if known is None:
        known = state.looked[device.name] = _found(state, device)
    return known


def _found(state: "State", device: "Device") -> Looked:
    ledger = device.ledger
    movable = tuple(
        slot
        for slot in device.slots.values()
        if slot.state is SlotState.READY and not state.is_kept(slot)
    )
    at_rest = ledger.free_bytes + sum(job.working_bytes for job in device.running.values())
    models = [slot.model for slot in movable]
    ever, ever_kept = at_rest + ledger.freed_bytes(models), ledger.kept_beyond(0, models)
    return Looked(ledger.free_bytes, at_rest, ever, ever_kept, movable)
