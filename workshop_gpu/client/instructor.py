"""`wg.admin`: what an instructor does from Python, in words of one line each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.api import schemas_instructor as instructor
from workshop_gpu.client.errors import BadRequest, NotAllowed
from workshop_gpu.client.http import Http
from workshop_gpu.client.listing import (
    AuditTrail,
    HelpTable,
    JobTable,
    KernelTable,
    ParticipantTable,
    PolicyView,
)
from workshop_gpu.client.reservations import find_device

T = TypeVar("T")

_NO_RIGHT = (
    "this needs the instructor's right, and a notebook's own token never has it. Use the panel, or "
    "connect with the server's token first: wg.connect(url, token=...)."
)


class Instructor:
    """An instructor's actions. Each is noted in the audit, and holds until it is undone.

    `http` gives the server's API when something is asked of it.
    """

    def __init__(self, http: Callable[[], Http]) -> None:
        self.http = http

    @property
    def _http(self) -> Http:
        return self.http()

    # the room

    def policy(self) -> PolicyView:
        """The rules for the room, as they are now."""
        return PolicyView(self._do(lambda: self._http.get("policy", instructor.Policy)))

    def set_policy(
        self,
        *,
        patience_s: float | None = None,
        queue_limit: int | None = None,
        min_residency_s: float | None = None,
    ) -> PolicyView:
        """Change rules for the room; what is None stays. They outlive a restart of the server.

        `patience_s`: for how many seconds ready models may be preferred. `queue_limit`: waiting
        jobs of one participant. `min_residency_s`: how long a loaded model is protected.
        """
        values = {
            "patience_s": patience_s,
            "queue_limit": queue_limit,
            "min_residency_s": min_residency_s,
        }
        return self._patch_policy({k: v for k, v in values.items() if v is not None})

    def reset_policy(self) -> PolicyView:
        """The rules for the room as the server's configuration has them."""
        return self._patch_policy(
            {"patience_s": None, "queue_limit": None, "min_residency_s": None}
        )

    def pause(self, reason: str = "") -> PolicyView:
        """No waiting job starts any more; running ones finish. People see the reason."""
        body = instructor.PauseRequest(reason) if reason else instructor.PauseRequest()
        return self._policy(lambda: self._http.post("queue/pause", instructor.Policy, body))

    def resume(self) -> PolicyView:
        """Waiting jobs start again."""
        return self._policy(lambda: self._http.post("queue/resume", instructor.Policy))

    # models

    def load(self, model: str) -> schemas.Model:
        """Load a model before anybody asks for it."""
        return self._model(model, "load")

    def evict(self, model: str) -> schemas.Model:
        """Make an idle model leave its GPUs."""
        return self._model(model, "evict")

    def pin(self, model: str) -> schemas.Model:
        """Load a model and never evict it for another one."""
        return self._change(model, instructor.ModelPolicyRequest(pinned=True))

    def unpin(self, model: str) -> schemas.Model:
        """The model may leave again when room is needed."""
        return self._change(model, instructor.ModelPolicyRequest(pinned=False))

    def withdraw(self, model: str, reason: str = "") -> schemas.Model:
        """Offer a model no longer; people see it greyed out, with the reason."""
        return self._change(model, instructor.ModelPolicyRequest(offered=False, reason=reason))

    def offer(self, model: str) -> schemas.Model:
        """Offer a withdrawn model again."""
        return self._change(model, instructor.ModelPolicyRequest(offered=True))

    def keep_warm(self, model: str, seconds_s: float | None) -> schemas.Model:
        """For how long the model stays after its last job; None: as models.toml says."""
        return self._change(model, instructor.ModelPolicyRequest(keep_warm_s=seconds_s))

    def place(self, model: str, placement: str | None) -> schemas.Model:
        """How the model is placed from its next load on: a rung's name ("resident",
        "staged-encoders" …, as `wg.explain` shows them), "auto", or None: as models.toml says."""
        return self._change(model, instructor.ModelPolicyRequest(placement=placement))

    # people

    def participants(self) -> ParticipantTable:
        """Who is in the room."""
        answer = self._do(lambda: self._http.get("participants", instructor.ParticipantList))
        return ParticipantTable(answer.participants)

    def limit(self, participant: str, queue_limit: int | None) -> PolicyView:
        """How many jobs of a participant (name or id) may wait; None: as many as of all."""
        return self._rule(participant, instructor.ParticipantRequest(queue_limit=queue_limit))

    def prioritize(self, participant: str, priority: schemas.PriorityName | None) -> PolicyView:
        """The class of a participant's jobs: urgent, high, normal, low or batch; None: normal."""
        return self._rule(participant, instructor.ParticipantRequest(priority=priority))

    def jobs(self) -> JobTable:
        """Everybody's jobs, newest first."""
        return JobTable(self._do(lambda: self._http.get("jobs?all=1", schemas.JobList)).jobs)

    def cancel(self, job: str | schemas.Job) -> None:
        """Cancel anybody's job, waiting or running."""
        job_id = job if isinstance(job, str) else job.id
        self._do(lambda: self._http.delete(f"jobs/{_segment(job_id)}"))

    def end_reservation(self, reservation: str | schemas.Reservation) -> None:
        """Take anybody's reservation away."""
        name = reservation if isinstance(reservation, str) else reservation.id
        self._do(lambda: self._http.delete(f"reservations/{_segment(name)}"))

    # GPUs

    def clear(self, gpu: int | str = 0) -> schemas.Reservation:
        """Clear a GPU for training: running jobs finish, its models leave, nothing new starts
        there until `open`."""
        path = f"devices/{_segment(self._device(gpu))}/clear"
        return self._do(lambda: self._http.post(path, schemas.Reservation))

    def open(self, gpu: int | str = 0) -> None:
        """Give a cleared GPU back to the room."""
        path = f"devices/{_segment(self._device(gpu))}/clear"
        self._do(lambda: self._http.delete(path))

    # what is said

    def tell(self, text: str) -> schemas_room.Message:
        """Everybody reads this in a banner, until you take it back."""
        body = schemas_room.MessageRequest(text)
        return self._do(lambda: self._http.post("message", schemas_room.Message, body))

    def take_back(self) -> None:
        """Nobody reads the message any more."""
        self._do(lambda: self._http.delete("message"))

    def help_calls(self) -> HelpTable:
        """Raised hands, those first that have waited longest."""
        return HelpTable(self._do(lambda: self._http.get("help", schemas_room.HelpList)).calls)

    def helped(self, participant: str) -> None:
        """Take a participant's (name or id) hand down."""
        person = self._find(participant)
        self._do(lambda: self._http.delete(f"help/{_segment(person)}"))

    # kernels and pictures

    def kernels(self) -> KernelTable:
        """The kernels that run, what each holds of a GPU, and what a restart takes away."""
        return KernelTable(
            self._do(lambda: self._http.get("kernels", instructor.KernelList)).kernels
        )

    def restart(self, participant: str) -> instructor.Kernel:
        """Restart a participant's (name or id) kernel: its variables are lost, its memory on the
        GPU comes back."""
        path = f"kernels/{_segment(self._kernel_of(participant))}/restart"
        return self._do(lambda: self._http.post(path, instructor.Kernel))

    def export(self, path: str | Path = "workshop.zip", participant: str | None = None) -> Path:
        """Everybody's pictures with their metadata as a zip file at `path`, a folder for each
        participant; or those of one (name or id)."""
        query = f"?participant={_segment(self._find(participant))}" if participant else ""
        return self._do(lambda: self._http.save(f"export{query}", Path(path)))

    # looking back

    def audit(self) -> AuditTrail:
        """What instructors did, newest first."""
        return AuditTrail(self._do(lambda: self._http.get("audit", instructor.AuditList)).entries)

    def _do(self, act: Callable[[], T]) -> T:
        with _explained():
            return act()

    def _policy(self, act: Callable[[], instructor.Policy]) -> PolicyView:
        return PolicyView(self._do(act))

    def _patch_policy(self, changes: dict[str, float | int | None]) -> PolicyView:
        body = instructor.PolicyRequest(**changes)  # type: ignore[arg-type]
        return self._policy(lambda: self._http.patch("policy", instructor.Policy, body))

    def _model(self, model: str, verb: str) -> schemas.Model:
        path = f"models/{_segment(model)}/{verb}"
        return self._do(lambda: self._http.post(path, schemas.Model))

    def _change(self, model: str, body: instructor.ModelPolicyRequest) -> schemas.Model:
        path = f"models/{_segment(model)}"
        return self._do(lambda: self._http.patch(path, schemas.Model, body))

    def _rule(self, participant: str, body: instructor.ParticipantRequest) -> PolicyView:
        person = self._find(participant)
        path = f"participants/{_segment(person)}"
        return self._policy(lambda: self._http.patch(path, instructor.Policy, body))

    def _find(self, participant: str) -> str:
        """The id of the participant of this name or id. Raises BadRequest."""
        known = list(self.participants())
        named = [person.id for person in known if participant in (person.id, person.name)]
        if len(named) == 1:
            return named[0]
        if named:
            problem = f"several participants go by {participant!r:.60}; give the id of one"
        else:
            problem = f"there is no participant {participant!r:.60} (wg.admin.participants())"
        raise BadRequest("invalid_request", f"{problem}.", {"field": "participant"})

    def _kernel_of(self, participant: str) -> str:
        """The kernel of this id, or of the one participant of this name. Raises BadRequest."""
        if participant in [kernel.id for kernel in self.kernels()]:
            return participant
        known = [kernel.id for kernel in self.kernels() if kernel.name == participant]
        if len(known) == 1:
            return known[0]
        problem = "several kernels go by" if known else "no kernel runs that goes by"
        raise BadRequest(
            "invalid_request",
            f"{problem} {participant!r:.60}; give the id of one (wg.admin.kernels()).",
            {"field": "participant"},
        )

    def _device(self, gpu: int | str) -> str:
        devices = self._do(lambda: self._http.get("status", schemas.Status)).devices
        return find_device(gpu, devices) or ""

    def __repr__(self) -> str:
        return "<Instructor: pause, resume, pin, evict, clear, … see help(wg.admin)>"


@contextmanager
def _explained() -> Iterator[None]:
    """Say what a notebook's own token cannot do, and what to do about it."""
    try:
        yield
    except NotAllowed as problem:
        raise NotAllowed(problem.kind, _NO_RIGHT, problem.facts) from None


def _segment(name: str) -> str:
    """A name as one part of an address."""
    return quote(name, safe="")
