"""Which devices an event looks at: with thousands of jobs and dozens of devices, not all."""

from workshop_gpu.conductor.records import Device, State

MOST_WATCHED = 8


class Watch:
    """Up to eight devices are all looked at by every event. Of more, those that the event has
    changed and the next few in turn: each is looked at within a few events, the tick included.
    """

    def __init__(self) -> None:
        self._next = 0
        self._turn: list[str] = []

    def begin(self, state: State) -> None:
        """Another event: the next devices have their turn."""
        names = list(state.devices)
        if len(names) <= MOST_WATCHED:
            self._turn = names
            return
        first = self._next % len(names)
        self._next = first + MOST_WATCHED
        self._turn = (names + names)[first : self._next]

    def to_tell(self, state: State) -> list[Device]:
        """The devices that people may have to be told of: those that were touched. Two more are
        compared in turn."""
        names = {**state.touched_devices, **dict.fromkeys(self._turn[:2])}
        return [state.devices[name] for name in names if name in state.devices]

    def devices(self, state: State) -> list[Device]:
        """The devices to look at now."""
        names = {**state.touched_devices, **dict.fromkeys(self._turn)}
        return [state.devices[name] for name in names if name in state.devices]
