"""What happened, in words that everybody may read: the last of it, newest first."""

import time
from collections import deque
from collections.abc import Callable

import msgspec

from workshop_gpu.conductor.errors import gigabytes
from workshop_gpu.conductor.events import GIVEN_BACK, TAKEN_AWAY
from workshop_gpu.conductor.rungs import RESIDENT
from workshop_gpu.conductor.states import DeviceState
from workshop_gpu.conductor.stepping import words_of
from workshop_gpu.host.happenings import (
    DeviceChanged,
    Evicted,
    Happening,
    Loaded,
    LoadFailed,
    Offered,
    QueuePaused,
    Reserved,
    Told,
)

_KEPT = 50
_LONGEST_TEXT = 500
_EVERYTHING = words_of(RESIDENT)


class NewsItem(msgspec.Struct, frozen=True):
    """One thing that happened. `at` is seconds since 1970; `kind` is the happening's."""

    at: float
    kind: str
    text: str
    device: str = ""
    model: str = ""


class News:
    """The last things that happened. `name_of` gives the name that a participant goes by."""

    def __init__(self, name_of: Callable[[str], str], now: Callable[[], float] = time.time) -> None:
        self._name_of = name_of
        self._now = now
        self._items: deque[NewsItem] = deque(maxlen=_KEPT)

    @property
    def items(self) -> list[NewsItem]:
        """Newest first."""
        return list(reversed(self._items))

    def note(self, happening: Happening) -> NewsItem | None:
        """Keeps it as news; None where it is none (a job's end is its owner's business)."""
        text = in_words(happening, self._name_of)
        if not text:
            return None
        device, model = (getattr(happening, name, "") for name in ("device", "model"))
        item = NewsItem(self._now(), happening.kind, text[:_LONGEST_TEXT], device, model)
        self._items.append(item)
        return item


def in_words(happening: Happening, name_of: Callable[[str], str]) -> str:
    """A sentence without its full stop; "" for what is no news."""
    match happening:
        case Loaded():
            return _loaded(happening)
        case LoadFailed(device, model, error):
            return f"{model} could not be loaded on {device}: {error.message}"
        case Evicted():
            return _evicted(happening, name_of)
        case DeviceChanged():
            return _device(happening)
        case Reserved(_, participant, device, size_bytes, ended):
            what = "all" if size_bytes is None else gigabytes(size_bytes)
            who = name_of(participant)
            if ended == TAKEN_AWAY:
                return f"The instructor took {what} of {device} away from {who}"
            if ended == GIVEN_BACK:
                return f"{who} gave back {what} of {device}"
            if ended:
                return f"{who} no longer has {what} of {device} ({ended})"
            return f"{who} has {what} of {device} for code of their own"
        case QueuePaused(reason):
            return f"The queue is paused: {reason}" if reason else "The queue goes on"
        case Offered(model, withdrawn):
            if withdrawn is None:
                return f"{model} is offered again"
            return f"{model} is no longer offered" + (f": {withdrawn}" if withdrawn else "")
        case Told(text):
            return text
    return ""


def _loaded(told: Loaded) -> str:
    """With its placement where that is not what one would think, or has changed."""
    took = "" if told.seconds_s is None else f" in {duration(told.seconds_s)}"
    size, placement = gigabytes(told.size_bytes), told.placement
    if told.before:
        return f"{told.model} was placed anew on {told.device}{took}: {placement} ({size})"
    how = f", {placement}" if placement not in ("", _EVERYTHING) else ""
    return f"{told.model} was loaded on {told.device}{took} ({size}{how})"


def _evicted(gone: Evicted, name_of: Callable[[str], str]) -> str:
    text = f"{gigabytes(gone.freed_bytes)} of {gone.model} evicted"
    if gone.why.startswith("to "):
        text += f" {gone.why}"
    elif gone.why:
        text += f" ({gone.why})"
    if gone.participant:
        text += f", for {name_of(gone.participant)}"
    if gone.idle_s >= 1.0 and not gone.why.startswith("not used"):
        text += f"; it had been idle for {duration(gone.idle_s)}"
    return text


def _device(changed: DeviceChanged) -> str:
    device = changed.device
    because = f" ({changed.reason})" if changed.reason else ""
    match changed.state:
        case DeviceState.READY:
            return f"{device} works again"
        case DeviceState.LOST:
            every_s = changed.retry_s
            again = "" if every_s is None else f"; it is tried again every {duration(every_s)}"
            return f"{device} cannot be used{because}{again}"
        case _:
            return f"The worker of {device} is being started again{because}"


def duration(seconds_s: float) -> str:
    """As people say it: "0.4 s", "12 s", "12 min", "2 h"."""
    if seconds_s < 9.95:
        return f"{seconds_s:.1f} s"
    if seconds_s < 120:
        return f"{seconds_s:.0f} s"
    if seconds_s < 7200:
        return f"{seconds_s / 60:.0f} min"
    return f"{seconds_s / 3600:.0f} h"
