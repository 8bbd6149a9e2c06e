"""What everybody in the room may know of what happens there: news, history, messages, help.

Times (`at`) are seconds since 1970, UTC. All texts are text, never markup.
"""

import msgspec

# requests


class MessageRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST message (instructor): everybody reads it in a banner until it is taken back."""

    text: str


class HelpRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST help: raise a hand. `text` may say what about."""

    text: str = ""


# answers


class News(msgspec.Struct, frozen=True):
    """Something that happened, in words. `kind` is loaded, load_failed, evicted, device,
    reservation, queue, offer or notice."""

    at: float
    kind: str
    text: str
    device: str = ""
    model: str = ""


class Message(msgspec.Struct, frozen=True):
    """What the instructor tells everybody."""

    text: str
    who: str
    at: float


class HelpCall(msgspec.Struct, frozen=True):
    """A raised hand: whose (`participant` is the id), and in which notebook ("" where none)."""

    participant: str
    name: str
    notebook: str
    text: str
    at: float
    mine: bool


class HelpList(msgspec.Struct, frozen=True):
    """GET help: raised hands, those first that have waited longest. Participants see their own."""

    calls: list[HelpCall]


class HistoryPoint(msgspec.Struct, frozen=True):
    """One moment: jobs that waited and ran, pictures finished in the minute before, and by device
    the bytes that were really held there (`used_bytes`) or set aside (`reserved_bytes`, only where
    there are any)."""

    at: float
    waiting: int
    running: int
    images_per_minute: float
    used_bytes: dict[str, int]
    reserved_bytes: dict[str, int]


class History(msgspec.Struct, frozen=True):
    """GET history: a point each `every_s` seconds, oldest first, of the last half hour. Where the
    server did not run there are none. `now` is the server's clock, for `?after=`."""

    now: float
    every_s: float
    points: list[HistoryPoint]


# events of the stream


class NewsEvent(msgspec.Struct, frozen=True, tag="news", tag_field="event"):
    """Something happened."""

    news: News


class MessageEvent(msgspec.Struct, frozen=True, tag="message", tag_field="event"):
    """The instructor's message changed; null: there is none any more."""

    message: Message | None


class HelpEvent(msgspec.Struct, frozen=True, tag="help", tag_field="event"):
    """A hand was raised (`raised`), or is down again. Told to its owner and to instructors."""

    call: HelpCall
    raised: bool
