"""Jobs as the host has them, as the journal keeps them, and as the conductor is told of them."""

from workshop_gpu.conductor.effects import JobView
from workshop_gpu.conductor.events import JobSubmitted
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host.journal_rows import Entry
from workshop_gpu.host.records import JobRecord, Participant


def request_of(record: JobRecord) -> JobSubmitted:
    """The request for the conductor."""
    params, participant = record.params, record.participant
    return JobSubmitted(
        job=record.id,
        participant=participant.id,
        kernel=participant.kernel,
        model=record.model,
        steps=params.drawn_steps * params.images,
        pixels=params.width * params.height,
        batch=params.batch,
        priority=record.priority,
        group=record.group,
        placement=record.placement,
        manner=params.manner,
        beside_bytes=record.lora_bytes,
        compiled=params.compiled,
        images=params.images,
    )


def entry_of(record: JobRecord) -> Entry:
    """The job for the journal, as it is now."""
    view, participant = record.view, record.participant
    return Entry(
        id=record.id,
        participant=participant.id,
        name=participant.name,
        kernel=participant.kernel,
        notebook=participant.notebook,
        model=record.model,
        params=record.params,
        priority=record.priority,
        placement=record.placement,
        state=view.state if view else JobState.QUEUED,
        submitted_at=record.submitted_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        device=view.device if view else None,
        batch=view.batch if view else 1,
        images=record.saved_images,
        image_bytes=record.saved_bytes,
        seconds_s=record.seconds_s,
        error=view.error if view else None,
        deaths=record.deaths,
    )


def record_of(entry: Entry) -> JobRecord:
    """The job from the journal. One that has not ended begins anew: it has no view yet."""
    record = JobRecord(
        entry.id,
        Participant(entry.participant, entry.name, entry.kernel, entry.notebook),
        entry.model,
        entry.params,
        entry.submitted_at,
        priority=entry.priority,
        placement=entry.placement,
        deaths=entry.deaths,
    )
    if entry.state.ended:
        record.started_at, record.ended_at = entry.started_at, entry.ended_at
        record.saved_images, record.saved_bytes = entry.images, entry.image_bytes
        record.seconds_s, record.view = entry.seconds_s, _view(entry)
    return record


def _view(entry: Entry) -> JobView:
    """The end of a job. The conductor's clock of that time is gone, and so are its times."""
    steps = entry.params.drawn_steps * entry.params.images
    return JobView(
        job=entry.id,
        participant=entry.participant,
        kernel=entry.kernel,
        model=entry.model,
        priority=entry.priority,
        state=entry.state,
        device=entry.device,
        position=0,
        expected_wait_s=None,
        waiting_for="",
        step=steps if entry.state is JobState.DONE else 0,
        steps=steps,
        submitted_s=-1.0,
        started_s=-1.0,
        ended_s=-1.0,
        error=entry.error,
        batch=entry.batch,
    )
