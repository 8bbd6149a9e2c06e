"""What goes wrong, as people in a notebook see it: one sentence, no wall of traceback.

The server's errors arrive as kind, message and facts; `refusal` turns them into a class that
can be caught. Every class keeps the three.
"""

from typing import ClassVar

Fact = str | int | float | bool | list[str] | None


class ClientError(Exception):
    """The base of everything that this client raises."""

    title: ClassVar[str] = "Workshop GPU"
    kind: str = "client_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines in place of a traceback."""
        return [f"{self.title}: {self.message}"]


class WorkshopUnreachable(ClientError):
    """There is no server, or it does not answer."""

    title = "The workshop cannot be reached"
    kind = "unreachable"


class NoServer(WorkshopUnreachable):
    """No Jupyter server with Workshop GPU was found."""

    title = "No Workshop GPU server"
    kind = "no_server"


class ConnectionLost(WorkshopUnreachable):
    """The server does not answer (any more)."""

    title = "No answer from the Workshop GPU server"
    kind = "connection_lost"


class ClientClosed(ClientError):
    """The client was closed, and something that it made is still used."""

    title = "This connection was closed"
    kind = "client_closed"

    def __init__(self) -> None:
        super().__init__("make a new client with wg.connect(), and this object anew with it.")


class ServerRefused(ClientError):
    """The server said no. `kind` is one word, `facts` are the numbers behind the message."""

    title = "Not possible"

    def __init__(self, kind: str, message: str, facts: dict[str, Fact] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.facts = facts or {}


class BadRequest(ServerRefused):
    """A value that is not allowed; `facts["field"]` says which."""

    title = "That value does not work"


class NotAllowed(ServerRefused):
    """The token is unknown, or lacks the right."""

    title = "Not allowed"


class ModelNotOffered(ServerRefused):
    """No such model here, or the instructor switched it off, or its files are broken."""

    title = "Model not available"


class NotAccepted(ServerRefused):
    """The model cannot begin with a picture, or takes no mask; `models()` says which can."""

    title = "This model cannot do that"


class NotRepeatable(ServerRefused):
    """The picture cannot be drawn here as it was drawn, so that its last bits would differ;
    `again(image, exactly=False)` draws it all the same."""

    title = "Not the same to the last bit"


class InputUnknown(ServerRefused):
    """A picture to begin with is not on the server any more."""

    title = "The picture to begin with is gone"


class NeverFits(ServerRefused):
    """The request is too large for every GPU of this server."""

    title = "Too large for the GPUs here"


class QueueFull(ServerRefused):
    """You have as many waiting jobs as one may have."""

    title = "Too many waiting jobs"


class JobUnknown(ServerRefused):
    """No job of yours has this id."""

    title = "No such job"


class JobEnded(ServerRefused):
    """The job is over, so it cannot be cancelled."""

    title = "The job is over"


class Lost(ServerRefused):
    """Something that this kernel held on the server has ended."""

    title = "That is over"


class HoldLost(Lost):
    """A hold ended before it was dropped: the model may have been evicted meanwhile."""

    title = "The hold was lost"


class ReservationLost(Lost):
    """A reservation ended before it was given back: others may use that memory by now."""

    title = "The reservation was lost"


class JobFailed(ServerRefused):
    """The job was accepted and then failed."""

    title = "The picture could not be made"


class TimedOut(ClientError, TimeoutError):
    """The time that the caller gave for it is over. What was waited for may still come."""

    title = "Not in time"
    kind = "timed_out"


class JobCancelled(ClientError):
    """The job was cancelled before it was done."""

    title = "Cancelled"
    kind = "job_cancelled"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or the notebook's stop button, while something was waited for: it was given up."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self.message}"]


_CLASSES: dict[str, type[ServerRefused]] = {
    "invalid_request": BadRequest,
    "not_json": BadRequest,
    "request_too_large": BadRequest,
    "unauthorized": NotAllowed,
    "forbidden": NotAllowed,
    "not_allowed": NotAllowed,
    "model_unknown": ModelNotOffered,
    "model_disabled": ModelNotOffered,
    "model_unavailable": ModelNotOffered,
    "images_not_accepted": NotAccepted,
    "not_repeatable": NotRepeatable,
    "input_unknown": InputUnknown,
    "model_too_large": NeverFits,
    "queue_full": QueueFull,
    "job_unknown": JobUnknown,
    "job_ended": JobEnded,
    "hold_unknown": HoldLost,
    "hold_ended": HoldLost,
    "reservation_unknown": ReservationLost,
    "reservation_ended": ReservationLost,
    "reservation_too_large": NeverFits,
    "invalid_policy": BadRequest,
    "out_of_memory": JobFailed,
    "load_failed": JobFailed,
    "generation_failed": JobFailed,
    "server_lost": JobFailed,
    "worker_lost": JobFailed,
}


def refusal(
    kind: str,
    message: str,
    facts: dict[str, Fact] | None = None,
    fallback: type[ServerRefused] = ServerRefused,
) -> ServerRefused:
    """The error of the class that stands for `kind`; `fallback` for a kind without a class."""
    return _CLASSES.get(kind, fallback)(kind, message, facts)
