"""Whether those who wait for a model get too little, though none of them waits for long.

A job that is overtaken for too long falls due (see `ordering.py`), and that bounds how far shares
drift apart on one GPU. On several it does not: where some GPUs have a model and each job's turn
comes before its patience is over, the others could go on for ever with those who had more. So who
waits for such a model counts as due as soon as somebody elsewhere is ahead of them by as many GPU
seconds as patience would give.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

from workshop_gpu.conductor.fairness import Reason
from workshop_gpu.conductor.queue import END, Key
from workshop_gpu.conductor.records import Device, State
from workshop_gpu.conductor.room import patience_s
from workshop_gpu.conductor.states import SlotState


class Lag:
    """For one look at these devices. `first_key_on`: the place of the first who could begin on
    one."""

    def __init__(
        self, state: State, devices: Sequence[Device], first_key_on: Callable[[Device], Key]
    ) -> None:
        self._state = state
        self._devices = devices
        self._first_key_on = first_key_on
        self._known: dict[str, bool] = {}

    def falls_behind(self, model: str) -> bool:
        """Whether the model is ready, but a device that does not have it would go on with others
        who had more, by more than may be."""
        known = self._known.get(model)
        if known is None:
            known = self._known[model] = self._falls_behind(model)
        return known

    def _falls_behind(self, model: str) -> bool:
        state = self._state
        if len(self._devices) < 2:
            return False
        key = state.queue.first_key(model)
        if key is None or key[1] != Reason.SHARE or not state.has_slot(model, SlotState.READY):
            return False
        most_s = patience_s(state, model)
        # Who left for this model is not brought right back into the room that it made.
        least_s = most_s / 2
        return self._farthest_s - key[2] > least_s and self._others_go_on(
            model, key, most_s, least_s
        )

    def _others_go_on(self, model: str, key: Key, most_s: float, least_s: float) -> bool:
        """Whether a device that does not have the model would go on with others who had more than
        the owner of the key: by more than `most_s`, or `least_s` where it is empty."""
        for least, device in self._going_on:
            if least[:2] != key[:2]:
                continue
            ahead_s = least[2] - key[2]
            if ahead_s <= least_s:
                return False
            if model not in device.slots and (ahead_s > most_s or not device.slots):
                return True
        return False

    @cached_property
    def _going_on(self) -> list[tuple[Key, Device]]:
        """Who goes on on each device at the least, those first who had most."""
        going_on = [(self._who_goes_on(device), device) for device in self._devices]
        return sorted(going_on, key=lambda each: each[0][2], reverse=True)

    def _who_goes_on(self, device: Device) -> Key:
        """The place of the one with the least of those who run there or could begin."""
        first = self._first_key_on(device)
        keys = [] if first is END else [first]
        for job in device.running.values():
            had_s = self._state.shares.used_s(job.participant) - job.charged_s
            keys.append((job.rank, Reason.SHARE, had_s, 0, 0))
        return min(keys or self._cold_keys, default=END)

    @cached_property
    def _cold_keys(self) -> list[Key]:
        """Of the first of each model that is nowhere: an empty device would go to one of them."""
        queue, places = self._state.queue, self._state.places
        return [queue.first_of(model).key for model in queue.models() if not places.get(model)]

    @cached_property
    def _farthest_s(self) -> float:
        """Nobody had more, of those who run or are the first of their models."""
        queue = self._state.queue
        firsts = (queue.first_of(model).key[2] for model in queue.models())
        return max(self._state.shares.level_s, max(firsts, default=0.0))
