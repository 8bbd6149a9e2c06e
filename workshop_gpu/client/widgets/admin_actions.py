"""What the buttons of the admin widget do: each in words afterwards."""

from collections.abc import Callable
from typing import Any

from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.instructor import Instructor

Action = Callable[[Instructor, str, str], Any]


def _number(text: str) -> float:
    """Raises BadRequest."""
    try:
        return float(text)
    except ValueError:
        raise BadRequest(
            "invalid_request", f"{text[:40]!r} is not a number. Write one such as 30."
        ) from None


def _count(text: str) -> int:
    number = _number(text)
    if not number.is_integer():
        raise BadRequest(
            "invalid_request", f"{text[:40]!r} is not a whole number. Write one such as 3."
        )
    return int(number)


ACTIONS: dict[str, tuple[Action, str]] = {
    "tell": (lambda do, _, value: do.tell(value), "Everybody reads it now."),
    "take_back": (lambda do, *_: do.take_back(), "Nobody reads the message any more."),
    "pause": (
        lambda do, _, value: do.pause(value),
        "The queue is paused: running jobs finish, no waiting one starts.",
    ),
    "resume": (lambda do, *_: do.resume(), "Waiting jobs start again."),
    "queue_limit": (
        lambda do, _, value: do.set_policy(queue_limit=_count(value)),
        "The limit holds from now on.",
    ),
    "patience": (
        lambda do, _, value: do.set_policy(patience_s=_number(value)),
        "The patience holds from now on.",
    ),
    "helped": (lambda do, what, _: do.helped(what), "The hand is down."),
    "load": (lambda do, what, _: do.load(what), "{what} is being loaded."),
    "evict": (lambda do, what, _: do.evict(what), "{what} leaves as soon as nobody uses it."),
    "pin": (lambda do, what, _: do.pin(what), "{what} is loaded, and stays."),
    "unpin": (lambda do, what, _: do.unpin(what), "{what} may leave when room is needed."),
    "offer": (lambda do, what, _: do.offer(what), "{what} is offered again."),
    "withdraw": (
        lambda do, what, value: do.withdraw(what, value),
        "{what} is no longer offered.",
    ),
    "limit": (
        lambda do, what, value: do.limit(what, _count(value)),
        "The limit holds from now on.",
    ),
    "prioritize": (
        lambda do, what, value: do.prioritize(what, value),  # type: ignore[arg-type]
        "Their jobs have another class from now on.",
    ),
    "restart": (lambda do, what, _: do.restart(what), "The kernel was restarted."),
    "cancel": (lambda do, what, _: do.cancel(what), "The job is cancelled."),
    "clear": (lambda do, what, _: do.clear(what), "{what} is being cleared."),
    "open": (lambda do, what, _: do.open(what), "{what} works for the room again."),
    "end_reservation": (lambda do, what, _: do.end_reservation(what), "The room is free again."),
}
"""Each with what is said when it worked."""


def act(do: Instructor, name: str, what: str, value: str) -> str:
    """Does it, and says what happened. Raises what the server's refusal stands for."""
    if name not in ACTIONS:
        raise BadRequest("invalid_request", f"There is no action {name[:40]!r}. Reload the page.")
    action, says = ACTIONS[name]
    action(do, what, value)
    return says.format(what=what)
