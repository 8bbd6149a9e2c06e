"""What happens with a job, in words: for bars in terminals, notebooks and the studio."""

from dataclasses import dataclass, replace

from workshop_gpu.api import schemas


@dataclass(frozen=True)
class Progress:
    """All that is known of a job at one moment.

    `reachable`: whether the server answers. `passed_s`: whole seconds since a waiting job's
    expected wait was announced. `restarted`: whether the server was, since the job was submitted.
    """

    job: schemas.Job
    model: schemas.Model | None = None
    preview: schemas.PreviewEvent | None = None
    reachable: bool = True
    passed_s: int = 0
    restarted: bool = False

    def __str__(self) -> str:
        """In words: "Step 3 of 20"."""
        return describe(self).line()


@dataclass(frozen=True)
class Words:
    """A line to show, a part done from 0 to 1 (None: unknown), seconds to wait (None: unknown).

    `text` does not name the seconds: who shows them may count them down.
    """

    text: str
    part: float | None = None
    wait_s: float | None = None

    def line(self) -> str:
        """Text with the wait."""
        return self.text if self.wait_s is None else f"{self.text}, {about(self.wait_s)}"


def counted(number: int, thing: str) -> str:
    """Such as "1 job", "2 jobs"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def amount(size_bytes: int) -> str:
    """Bytes as people read them: "3.1 GB", "42 MB"."""
    if size_bytes >= 1_000_000_000:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.{0 if size_bytes >= 10_000_000 else 1}f} MB"


def amount_of(done_bytes: int, total_bytes: int) -> str:
    """How far a load is, in one unit: "1.2 of 3.4 GB"."""
    if total_bytes >= 1_000_000_000:
        return f"{done_bytes / 1e9:.1f} of {total_bytes / 1e9:.1f} GB"
    digits = 0 if total_bytes >= 10_000_000 else 1
    return f"{done_bytes / 1e6:.{digits}f} of {total_bytes / 1e6:.{digits}f} MB"


def amount_with_speed(done_bytes: int, total_bytes: int, bytes_per_s: float) -> str:
    """How far a load is and how fast it goes: "3.0 of 27.0 GB, 12.1 GB/s"; 0: it is not known."""
    far = amount_of(done_bytes, total_bytes)
    return f"{far}, {amount(round(bytes_per_s))}/s" if bytes_per_s > 0 else far


def left_s(done_bytes: int, total_bytes: int, bytes_per_s: float) -> float | None:
    """The seconds that a load still takes at its speed; None while that is not known."""
    return max(0, total_bytes - done_bytes) / bytes_per_s if bytes_per_s > 0 else None


def load_words(loading: schemas.Slot | schemas.Model) -> str:
    """A load for who looks at it: "3.0 of 27.0 GB, 12.1 GB/s, about 2 s"."""
    how = (loading.done_bytes, loading.total_bytes, loading.bytes_per_s)
    rest_s = left_s(*how)
    return amount_with_speed(*how) + ("" if rest_s is None else f", {about(rest_s)}")


def about(wait_s: float) -> str:
    """A wait as a person would say it."""
    if wait_s < 1.5:
        return "any moment now"
    if wait_s < 90:
        return f"about {wait_s:.0f} s"
    return f"about {wait_s / 60:.0f} min"


def describe_reservation(reservation: schemas.Reservation, passed_s: int = 0) -> Words:
    """The words for a reservation; `passed_s`: whole seconds since its wait was announced."""
    size_bytes = reservation.size_bytes
    what = "the whole GPU" if reservation.whole or not size_bytes else amount(size_bytes)
    where = f" on {reservation.device}" if reservation.device else ""
    if reservation.state == "granted":
        return Words(f"Reserved {what}{where}", 1.0)
    if reservation.state == "ended":
        return Words(f"The reservation of {what}{where} is over")
    place = f" (position {reservation.position})" if reservation.position > 1 else ""
    wait_s = reservation.expected_wait_s
    reason = f": {reservation.reason}" if reservation.reason else ""
    return Words(
        f"Waiting for {what}{where}{place}{reason}",
        None,
        None if wait_s is None else max(0.0, wait_s - passed_s),
    )


def describe(progress: Progress) -> Words:
    """The words for a job's present state."""
    job = progress.job
    if not progress.reachable and not job.state.ended:
        return Words("The server does not answer; trying again")
    if job.state in ("queued", "running"):
        running = job.state == "running"
        words = _running(job) if running else _waiting(progress)
        beside = [job.went_on if running else ""]
        beside.append("the server was restarted" if progress.restarted else "")
        told = "; ".join(filter(None, beside))
        return replace(words, text=f"{words.text} ({told})") if told else words
    if job.state == "failed":
        return Words(job.error.message if job.error else "Failed")
    return Words("Cancelled") if job.state == "cancelled" else Words("Done", 1.0)


def _waiting(progress: Progress) -> Words:
    job, model, wait_s = progress.job, progress.model, progress.job.expected_wait_s
    if wait_s is not None:
        wait_s = max(0.0, wait_s - progress.passed_s)
    if model is not None and model.state in ("loading", "downloading") and job.position <= 1:
        return _coming(job.model, model, wait_s)
    return Words(_waiting_for(job), None, wait_s)


def _coming(name: str, model: schemas.Model, wait_s: float | None) -> Words:
    """A load foreseen as shorter than it turns out does not begin "any moment now": its speed says
    how long it takes at least."""
    verb = "Loading" if model.state == "loading" else "Downloading"
    how = (model.done_bytes, model.total_bytes, model.bytes_per_s)
    if model.total_bytes <= 0:
        return Words(f"{verb} {name}", None, wait_s)
    known_s = [each for each in (wait_s, left_s(*how)) if each is not None]
    part = min(1.0, model.done_bytes / model.total_bytes)
    return Words(f"{verb} {name}: {amount_with_speed(*how)}", part, max(known_s, default=None))


def _waiting_for(job: schemas.Job) -> str:
    name = job.model
    if job.reason:
        return job.reason.removesuffix(".")
    if job.waiting_for == "download":
        return f"{name} is being downloaded{_place(job)}"
    if job.waiting_for == "load":
        return f"{name} will be loaded{_place(job)}"
    if job.waiting_for == "room":
        return f"Waiting for room on the GPU for {name}{_place(job)}"
    if job.waiting_for == "device":
        return "Waiting for a GPU to be ready"
    order = "Next" if job.position <= 1 else f"Position {job.position}"
    return f"{order} in the queue{_class(job)}"


def _class(job: schemas.Job) -> str:
    return "" if job.priority == "normal" else f" ({job.priority} priority)"


def _place(job: schemas.Job) -> str:
    return f" (position {job.position})" if job.position > 1 else ""


def _running(job: schemas.Job) -> Words:
    if job.steps <= 0 or job.step <= 0:
        return Words("Starting", 0.0)
    if job.step >= job.steps:
        return Words(f"Step {job.steps} of {job.steps}: finishing", 1.0)
    return Words(f"Step {job.step} of {job.steps}", job.step / job.steps)
