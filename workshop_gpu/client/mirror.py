"""The client's copy of what the server told: a fold over the events of the stream."""

from collections import OrderedDict
from typing import Literal

from msgspec.structs import replace

from workshop_gpu.api import schemas

KEPT_JOBS = 200
KEPT_PICTURES = 16
"""Of how many jobs: their waiters take them at once."""
_BEST_FIRST: tuple[Literal["ready", "loading", "leaving", "failed"], ...] = (
    "ready",
    "loading",
    "leaving",
    "failed",
)


class Mirror:
    """Models, devices and jobs as last told. Not locked: its owner does that."""

    def __init__(self) -> None:
        self.models: dict[str, schemas.Model] = {}
        self.devices: dict[str, schemas.Device] = {}
        self.jobs: OrderedDict[str, schemas.Job] = OrderedDict()
        self.previews: dict[str, schemas.PreviewEvent] = {}
        self.pictures: OrderedDict[str, list[bytes]] = OrderedDict()
        """PNG files of small pictures that came along, until somebody takes them."""
        self.doubtful: set[str] = set()
        """Jobs that a snapshot did not name though they had not ended: somebody must ask."""

    def apply(self, event: schemas.StreamEvent) -> None:
        match event:
            case schemas.SnapshotEvent():
                self._start_over(event)
            case schemas.JobEvent(job=job):
                self.learn_job(job)
            case schemas.PreviewEvent(job=job_id):
                self.previews[job_id] = event
            case schemas.PictureEvent():
                self._learn_picture(event)
            case schemas.SlotEvent(slot=slot):
                self._learn_slot(slot)
            case schemas.DeviceEvent(device=device):
                self.devices[device.id] = device
            case schemas.ModelsEvent(models=models):
                self.learn_models(models)
            case schemas.WaitsEvent(waits_s=waits_s):
                self._learn_waits(waits_s)
            case _:  # holds, reservations, rules and notices are for subscribers
                pass

    def learn_job(self, job: schemas.Job) -> None:
        """Take in a job, whether from the stream or from an answer.

        The two may cross: an answer that was made before the job's end must not undo the end.
        """
        known = self.jobs.get(job.id)
        if known is not None and known.state.ended and not job.state.ended:
            return
        self.jobs[job.id] = job
        self.doubtful.discard(job.id)
        if job.state.ended:
            self.previews.pop(job.id, None)
        while len(self.jobs) > KEPT_JOBS:
            dropped, _ = self.jobs.popitem(last=False)
            self.previews.pop(dropped, None)
            self.doubtful.discard(dropped)

    def _learn_picture(self, event: schemas.PictureEvent) -> None:
        if event.index == 0:  # told once more after a break, they start over
            self.pictures[event.job] = []
        self.pictures.setdefault(event.job, []).append(event.png)
        while len(self.pictures) > KEPT_PICTURES:
            self.pictures.popitem(last=False)

    def learn_models(self, models: list[schemas.Model]) -> None:
        self.models = {model.id: model for model in models}

    def _learn_waits(self, waits_s: dict[str, float | None]) -> None:
        self.models = {
            name: replace(model, expected_wait_s=waits_s.get(name))
            for name, model in self.models.items()
        }

    def _start_over(self, snapshot: schemas.SnapshotEvent) -> None:
        self.learn_models(snapshot.models)
        self.devices = {device.id: device for device in snapshot.status.devices}
        for job in snapshot.mine:
            self.learn_job(job)
        named = {job.id for job in snapshot.mine}
        self.doubtful = {
            job.id for job in self.jobs.values() if job.id not in named and not job.state.ended
        }

    def _learn_slot(self, slot: schemas.Slot) -> None:
        model = self.models.get(slot.model)
        if model is None:
            return
        slots = [other for other in model.slots if other.device != slot.device]
        if slot.state != "absent":
            slots.append(slot)
        state = model.state
        if state not in ("downloading", "unavailable"):
            states = {slot.state.value for slot in slots}
            state = next((best for best in _BEST_FIRST if best in states), "absent")
        loading = slot.state == "loading"
        self.models[slot.model] = replace(
            model,
            slots=slots,
            state=state,
            done_bytes=slot.done_bytes if loading else model.done_bytes,
            total_bytes=slot.total_bytes if loading else model.total_bytes,
            bytes_per_s=slot.bytes_per_s if state == "loading" else 0.0,
        )
