"""Models that are not on this disk yet: one download each, shared by all who wait for it.

A download disturbs no device: other jobs load and run meanwhile.
"""

from workshop_gpu.conductor.records import State
from workshop_gpu.conductor.states import SlotState

_HERE_OR_COMING = (SlotState.LOADING, SlotState.READY)


def awaits_download(state: State, name: str) -> bool:
    """Whether the model must be downloaded before anything can be done with it.

    One that is on a device serves on, though its files may have been deleted meanwhile.
    """
    return not state.models[name].facts.on_disk and not state.has_slot(name, *_HERE_OR_COMING)


def to_fetch(state: State) -> list[str]:
    """The models whose download should begin: somebody wants them, and none is under way.

    One that failed is tried again when somebody asks anew, not by itself.
    """
    return [
        name
        for name, model in state.models.items()
        if not model.facts.on_disk
        and awaits_download(state, name)
        and not (model.fetching or model.fetch_failed)
        and (
            state.queue.awaits(name)
            or state.holds.on(name)
            or model.wanted_s is not None
            or model.pinned
        )
    ]
