"""The one place where an error becomes an HTTP answer."""

from workshop_gpu.conductor.errors import ErrorReport, WorkshopError

STATUS = {
    "invalid_request": 400,
    "invalid_placement": 400,
    "invalid_policy": 400,
    "not_json": 400,
    "not_allowed": 403,
    "not_found": 404,
    "model_unknown": 404,
    "lora_unknown": 404,
    "job_unknown": 404,
    "hold_unknown": 404,
    "reservation_unknown": 404,
    "device_unknown": 404,
    "image_unknown": 404,
    "input_unknown": 404,
    "participant_unknown": 404,
    "kernel_unknown": 404,
    "no_pictures": 404,
    "no_help_asked": 404,
    "method_not_allowed": 405,
    "model_disabled": 409,
    "model_in_use": 409,
    "model_not_loaded": 409,
    "job_ended": 409,
    "not_cleared": 409,
    "hold_ended": 410,
    "reservation_ended": 410,
    "request_too_large": 413,
    "images_not_accepted": 422,
    "not_repeatable": 422,
    "model_too_large": 422,
    "reservation_too_large": 422,
    "queue_full": 429,
    "too_many_reservations": 429,
    "too_many_requests": 429,
    "too_many_streams": 429,
    "job_cancelled": 499,
    "no_device": 503,
    "out_of_memory": 503,
    "lora_unusable": 503,
    "model_unavailable": 503,
    "server_stops": 503,
    "time_limit": 504,
    "disk_full": 507,
}
"""HTTP status per kind; 500 for every other."""


class NotJSON(WorkshopError):
    """The body is not JSON, or not the JSON that this address takes."""

    kind = "not_json"


class NotAllowed(WorkshopError):
    """The one who asks has no right to this."""

    kind = "not_allowed"


class RequestTooLarge(WorkshopError):
    """The body is longer than any request needs."""

    kind = "request_too_large"

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"The request has {size_bytes} bytes, and at most {limit_bytes} are read. Send less.",
            size_bytes=size_bytes,
            limit_bytes=limit_bytes,
        )


class TooManyRequests(WorkshopError):
    """One participant asks too often."""

    kind = "too_many_requests"

    def __init__(self, limit_per_s: float, retry_after_s: float) -> None:
        super().__init__(
            f"You ask the server more than {limit_per_s:g} times a second. Wait "
            f"{retry_after_s:.1f} s; the event stream tells of changes without asking.",
            limit_per_s=limit_per_s,
            retry_after_s=retry_after_s,
        )


class TooManyStreams(WorkshopError):
    """One participant has too many event streams open."""

    kind = "too_many_streams"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"You have {limit} event streams open, as many as one participant may. Close tabs or "
            "clients that you no longer use.",
            limit=limit,
        )


class ImageUnknown(WorkshopError):
    """The job has no such image, or not yet."""

    kind = "image_unknown"

    def __init__(self, job: str, index: int, images: int) -> None:
        super().__init__(
            f'The job "{job}" has no image {index}; it has {images}, counted from 0. Wait until '
            "it is done, or ask for a lower number.",
            job=job,
            images=images,
        )


class ParticipantUnknown(WorkshopError):
    """Nobody goes by this id."""

    kind = "participant_unknown"

    def __init__(self, participant: str) -> None:
        super().__init__(
            f'There is no participant "{participant[:100]}". GET participants lists all.',
            participant=participant[:100],
        )


class KernelUnknown(WorkshopError):
    """No such kernel runs here."""

    kind = "kernel_unknown"

    def __init__(self, kernel: str) -> None:
        super().__init__(
            f'There is no running kernel "{kernel[:100]}". GET kernels lists all.',
            kernel=kernel[:100],
        )


class RestartFailed(WorkshopError):
    """The kernel could not be restarted."""

    kind = "restart_failed"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The kernel of {name} could not be restarted ({reason[:200] or 'no reason given'}). "
            "Shut it down in Jupyter's list of running kernels, and open the notebook again.",
        )


class NoPictures(WorkshopError):
    """There is nothing to export."""

    kind = "no_pictures"

    def __init__(self, participant: str) -> None:
        whose = f' of "{participant[:100]}"' if participant else ""
        super().__init__(
            f"There are no finished pictures{whose} yet. Export them when some are done.",
            participant=participant[:100],
        )


def status_of(report: ErrorReport) -> int:
    """The HTTP status for an error."""
    return STATUS.get(report.kind, 500)


def body_of(report: ErrorReport, request_id: str) -> dict[str, object]:
    """`{"error": {"kind", "message", "request_id", …facts}}`."""
    told = {"kind": report.kind, "message": report.message, "request_id": request_id}
    return {"error": {**report.facts, **told}}
