"""Every error that can reach a person: a kind (one word), a message, the facts.

The message says what to do. An error is made where the fact is known; it becomes HTTP in
`api/errors.py` and a cell's message in `client/errors.py`, and nowhere else.
"""

from typing import ClassVar

import msgspec

Fact = str | int | float | bool | list[str] | None


class ErrorReport(msgspec.Struct, frozen=True):
    """An error as it crosses a wall (worker to host, server to client)."""

    kind: str
    message: str
    facts: dict[str, Fact] = {}


def gigabytes(size_bytes: int) -> str:
    """Bytes as people read them: "3.1 GB", "42 MB"."""
    if size_bytes >= 1_000_000_000:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.0f} MB"


def rounded_up(size_bytes: int) -> str:
    """As `gigabytes`, for what is needed at least: the number does as it stands there."""
    return _in_units(-(-size_bytes // _digit(size_bytes)), size_bytes)


def rounded_down(size_bytes: int) -> str:
    """As `gigabytes`, for what is allowed at most."""
    return _in_units(size_bytes // _digit(size_bytes), size_bytes)


def _digit(size_bytes: int) -> int:
    """The bytes of the last digit that `gigabytes` shows."""
    return 10**8 if size_bytes >= 10**9 else 10**6


def _in_units(digits: int, size_bytes: int) -> str:
    return f"{digits / 10:.1f} GB" if size_bytes >= 10**9 else f"{digits} MB"


class WorkshopError(Exception):
    """The base of all errors with a kind; `facts` are plain values, bytes as integers."""

    kind: ClassVar[str] = "error"

    def __init__(self, message: str, **facts: Fact) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def report(self) -> ErrorReport:
        return ErrorReport(self.kind, self.message, dict(self.facts))


class ReportedError(WorkshopError):
    """An error that another process made; it keeps that process's kind and facts."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(report.message, **report.facts)
        self._report = report

    def report(self) -> ErrorReport:
        return self._report


class InvalidRequest(WorkshopError):
    """A request names a value that is not allowed."""

    kind = "invalid_request"

    def __init__(self, field: str, problem: str, **facts: Fact) -> None:
        super().__init__(f"{field}: {problem}", field=field, **facts)


class InputUnknown(WorkshopError):
    """No picture of this participant to begin with has this id (expired, or somebody else's)."""

    kind = "input_unknown"

    def __init__(self, field: str, input_id: str) -> None:
        super().__init__(
            f"{field}: the picture {input_id[:12]}… is not on this server (any more), or is "
            "somebody else's. Send the picture itself again.",
            field=field,
            input=input_id[:100],
        )


class ImagesNotAccepted(WorkshopError):
    """The model cannot begin with a picture, or cannot keep the rest of one."""

    kind = "images_not_accepted"

    def __init__(self, model: str, what: str) -> None:
        super().__init__(
            f'"{model}" takes no {what}. The list of models says which do (accepts); pick one of '
            "them.",
            model=model,
            what=what,
        )


class ModelUnknown(WorkshopError):
    """The catalogue has no such model."""

    kind = "model_unknown"

    def __init__(self, model: str, known: list[str]) -> None:
        offered = ", ".join(known) or "none"
        super().__init__(
            f'There is no model "{model}". Offered here: {offered}.', model=model, known=known
        )


class ModelDisabled(WorkshopError):
    """The instructor does not offer this model at present."""

    kind = "model_disabled"

    def __init__(self, model: str, reason: str = "") -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f'The model "{model}" is switched off by the instructor{why}. Pick another one.',
            model=model,
            reason=reason,
        )


class ModelUnavailable(WorkshopError):
    """The model's files are missing, incomplete or of a refused format."""

    kind = "model_unavailable"

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(
            f'The model "{model}" cannot be used: {problem} Pick another one, or tell the '
            "instructor.",
            model=model,
        )


class ModelTooLarge(WorkshopError):
    """The model fits on no GPU of this server, whatever leaves.

    Of `needed_bytes`, `min_free_bytes` are what the model's min_free_gb keeps free; where the rest
    would fit, the fact `most_free_bytes` is what that may be at most.
    """

    kind = "model_too_large"

    def __init__(
        self,
        model: str,
        needed_bytes: int,
        largest_bytes: int,
        fitting_side: int = 0,
        min_free_bytes: int = 0,
    ) -> None:
        most_free_bytes = largest_bytes - (needed_bytes - min_free_bytes)
        too_careful = 0 <= most_free_bytes < min_free_bytes
        setting = f"min_free_gb of the model may be {rounded_down(max(0, most_free_bytes))} at most"
        if fitting_side:
            advice = f"a picture of {fitting_side} × {fitting_side} pixels would fit"
            advice += f", or {setting}." if too_careful else "."
        elif too_careful:
            advice = f"{setting}, in models.toml."
        else:
            advice = "it fits at no size; take another model, or ask for a smaller variant of it."
        kept = f" and {gigabytes(min_free_bytes)} free beside it" if min_free_bytes else ""
        facts: dict[str, Fact] = {"most_free_bytes": most_free_bytes} if too_careful else {}
        super().__init__(
            f'"{model}" needs {rounded_up(needed_bytes)} with its working memory{kept}; the '
            f"largest GPU here can give {rounded_down(largest_bytes)}. "
            f"{rounded_up(needed_bytes - largest_bytes)} are missing: {advice}",
            model=model,
            needed_bytes=needed_bytes,
            largest_bytes=largest_bytes,
            missing_bytes=needed_bytes - largest_bytes,
            fitting_side=fitting_side,
            **facts,
        )


class ModelInUse(WorkshopError):
    """The model cannot leave now: jobs run, kernels hold it, or it is pinned."""

    kind = "model_in_use"

    def __init__(self, model: str, running_jobs: int, holds: int) -> None:
        super().__init__(
            f'"{model}" cannot be evicted now: {running_jobs} running job(s), {holds} hold(s). '
            "Wait for them, or end the kernels that hold it.",
            model=model,
            running_jobs=running_jobs,
            holds=holds,
        )


class ModelNotLoaded(WorkshopError):
    """Asked to evict a model that is on no GPU."""

    kind = "model_not_loaded"

    def __init__(self, model: str) -> None:
        super().__init__(f'"{model}" is on no GPU, so there is nothing to evict.', model=model)


class QueueFull(WorkshopError):
    """The participant already has as many waiting jobs as one may have."""

    kind = "queue_full"

    def __init__(
        self,
        waiting: int,
        limit: int,
        position: int,
        expected_wait_s: float | None,
        reason: str = "",
    ) -> None:
        """`expected_wait_s`: of the first of them, as it was announced; None: nobody knows."""
        text = "The instructor lets you have no waiting jobs at present."
        begins = "" if expected_wait_s is None else f" and starts in about {expected_wait_s:.0f} s"
        if waiting:
            jobs = "1 waiting job" if waiting == 1 else f"{waiting} waiting jobs"
            text = (
                f"You already have {jobs} (limit {limit}). "
                f"The next is at position {position}{begins}; wait for one to finish or cancel one."
                f"{reason and f' {reason}'}"
            )
        super().__init__(
            text,
            waiting=waiting,
            limit=limit,
            position=position,
            expected_wait_s=expected_wait_s,
        )


class JobUnknown(WorkshopError):
    """No job of this participant has this id (expired, or somebody else's)."""

    kind = "job_unknown"

    def __init__(self, job: str) -> None:
        super().__init__(
            f'You have no job "{job}". It may have expired, or be somebody else\'s. wg.jobs() '
            "shows yours.",
            job=job,
        )


class JobEnded(WorkshopError):
    """The job is over, so it cannot be cancelled any more."""

    kind = "job_ended"

    def __init__(self, job: str, state: str) -> None:
        super().__init__(
            f'The job "{job}" is already {state}; there is nothing to cancel.', job=job, state=state
        )


class HoldUnknown(WorkshopError):
    """No hold of this kernel has this id."""

    kind = "hold_unknown"

    def __init__(self, hold: str) -> None:
        super().__init__(f'You have no hold "{hold}". Take one with wg.hold.', hold=hold)


class HoldEnded(WorkshopError):
    """The hold ran out, was dropped, or ended with its kernel."""

    kind = "hold_ended"

    def __init__(self, hold: str, model: str, why: str = "") -> None:
        because = f": {why.rstrip('.')}" if why else ""
        super().__init__(
            f'The hold on "{model}" has ended{because}. Take a new one with wg.hold("{model}").',
            hold=hold,
            model=model,
        )


class InvalidPolicy(WorkshopError):
    """A policy has a value that is not allowed, or contradicts itself."""

    kind = "invalid_policy"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}. The policy stays as it was.", field=field)


class ReservationUnknown(WorkshopError):
    """No reservation of this kernel has this id."""

    kind = "reservation_unknown"

    def __init__(self, reservation: str) -> None:
        super().__init__(
            f'You have no reservation "{reservation}". Ask for one with wg.reserve.',
            reservation=reservation,
        )


class ReservationEnded(WorkshopError):
    """The reservation ran out, was dropped, or ended with its kernel."""

    kind = "reservation_ended"

    def __init__(self, reservation: str, why: str = "") -> None:
        because = f": {why.rstrip('.')}" if why else ""
        super().__init__(
            f"The reservation has ended{because}. Its room may be somebody else's by now; ask for "
            "a new one with wg.reserve.",
            reservation=reservation,
        )


class ReservationTooLarge(WorkshopError):
    """No GPU of this server, or not the one that was named, could ever give so much."""

    kind = "reservation_too_large"

    def __init__(self, device: str, needed_bytes: int, largest_bytes: int) -> None:
        super().__init__(
            f"{rounded_up(needed_bytes)} are more than {device} can give with everything else "
            f"gone: {rounded_down(largest_bytes)}. Reserve less.",
            needed_bytes=needed_bytes,
            largest_bytes=largest_bytes,
            missing_bytes=needed_bytes - largest_bytes,
        )


class TooManyReservations(WorkshopError):
    """The participant already has as many reservations as one may have."""

    kind = "too_many_reservations"

    def __init__(self, count: int, limit: int) -> None:
        text = f"You already have {count} reservations (limit {limit}). End one of them first."
        super().__init__(
            text if limit else "The instructor allows no reservations on this server.",
            count=count,
            limit=limit,
        )


class DeviceUnknown(WorkshopError):
    """This server has no such GPU."""

    kind = "device_unknown"

    def __init__(self, device: str, known: list[str]) -> None:
        here = ", ".join(known) or "none"
        super().__init__(f'There is no GPU "{device}". Here: {here}.', device=device, known=known)


class TimeLimit(WorkshopError):
    """A download, a load, a wait or a run took longer than the server allows."""

    kind = "time_limit"

    def __init__(self, what: str, limit_s: float, advice: str) -> None:
        super().__init__(
            f"{what} took longer than {limit_s:g} s. {advice}", what=what, limit_s=limit_s
        )


class DiskFull(WorkshopError):
    """What has to be kept cannot be written to the server's disk."""

    kind = "disk_full"

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(
            f"{what}: the server's disk is full, or its quota is used up ({problem}). Tell the "
            "instructor; once there is room again, so is work.",
            problem=problem,
        )


class NoDevice(WorkshopError):
    """This server has no GPU worker that could do the work."""

    kind = "no_device"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"No GPU can take work: {problem.rstrip('.')}. Try again in a minute; if it stays so, "
            "tell the instructor."
        )


class OutOfMemory(WorkshopError):
    """The device ran out of memory while loading or generating.

    `phase` is "load", "encode" (the prompt), "denoise", "decode" (the picture), or "" where it is
    not known.
    """

    kind = "out_of_memory"

    def __init__(self, what: str, needed_bytes: int, free_bytes: int, phase: str = "") -> None:
        super().__init__(
            f"Out of GPU memory while {what}: {gigabytes(free_bytes)} were free. "
            "Try a smaller picture, fewer images at once, or another model.",
            needed_bytes=needed_bytes,
            free_bytes=free_bytes,
            phase=phase,
        )


class LoadFailed(WorkshopError):
    """The model's loader refused the files."""

    kind = "load_failed"

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(
            f'"{model}" could not be loaded: {problem.rstrip(".")}. Pick another one, or tell '
            "the instructor.",
            model=model,
        )


class GenerationFailed(WorkshopError):
    """The pipeline raised, or its picture is not a picture (NaN)."""

    kind = "generation_failed"

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(
            f'"{model}" failed while generating: {problem.rstrip(".")}. Try other settings; if '
            "it goes on, tell the instructor.",
            model=model,
        )


class ServerLost(WorkshopError):
    """The server itself ended without warning whenever it ran this job."""

    kind = "server_lost"

    def __init__(self, model: str, deaths: int) -> None:
        super().__init__(
            f'This job, generating with "{model}", ended the server twice: it ran each time when '
            "the server stopped without warning, and is not tried again. Try again with other "
            "settings; if it goes on, tell the instructor.",
            deaths=deaths,
        )


class WorkerLost(WorkshopError):
    """The worker process ended while it worked on this; `log` are the last lines that it wrote."""

    kind = "worker_lost"

    def __init__(self, what: str, reason: str, deaths: int, log: str = "") -> None:
        super().__init__(
            f"{what} ended the GPU worker{' twice' if deaths > 1 else ''} ({reason}). Try "
            "again with other settings; if it goes on, tell the instructor.",
            reason=reason,
            deaths=deaths,
            log=log,
        )
