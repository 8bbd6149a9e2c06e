"""What the admin widget shows: rows with words and buttons, made by pure functions.

A button names what it does (`do`, see `admin_actions.py`) and to what. One with an `ask` says first
what will happen; one with an `input` wants a value first.
"""

from datetime import datetime
from typing import Any

import msgspec

from workshop_gpu.api import schemas
from workshop_gpu.api import schemas_instructor as instructor
from workshop_gpu.client.tables import model_state
from workshop_gpu.client.words import amount, counted, describe_reservation

Row = dict[str, Any]
_MOST_ACTIONS = 6


class Known(msgspec.Struct, frozen=True):
    """All that the view is made from."""

    status: schemas.Status
    models: list[schemas.Model]
    policy: instructor.Policy
    participants: list[instructor.Participant]
    kernels: list[instructor.Kernel]
    audit: list[instructor.AuditEntry]


def admin_view(known: Known) -> dict[str, Any]:
    """The sections from top to bottom: what is asked for most comes first."""
    status = known.status
    return {
        "sections": [
            _section("Raised hands", [_hand(call) for call in status.help], ""),
            _section("The room", _room(known)),
            _section("Models", [_model(model) for model in known.models], "No models."),
            _section("People", _people(known), "Nobody is here yet."),
            _section("Jobs", [_job(job) for job in [*status.running, *status.waiting]], "No jobs."),
            _section("GPUs", _gpus(status), "No GPU."),
            _section("Last actions", [_action(line) for line in known.audit[:_MOST_ACTIONS]], ""),
        ]
    }


def _section(title: str, rows: list[Row], empty: str = "") -> dict[str, Any]:
    """One without rows is left out, unless there is something to say about that."""
    return {"title": title, "rows": rows, "empty": empty, "hidden": not rows and not empty}


def _row(title: str, words: str, *buttons: Row | None, dim: bool = False) -> Row:
    shown = [button for button in buttons if button is not None]
    return {"title": title, "words": words, "buttons": shown, "dim": dim}


def _button(
    do: str, what: str, label: str, *, ask: str = "", field: dict[str, Any] | None = None
) -> Row:
    return {"do": do, "what": what, "label": label, "ask": ask, "input": field}


def _field(label: str, value: str, kind: str = "text", options: list[str] | None = None) -> Row:
    return {"label": label, "value": value, "kind": kind, "options": options or []}


def _hand(call: Any) -> Row:
    since = datetime.fromtimestamp(call.at).strftime("%H:%M")
    words = ", ".join(filter(None, (call.notebook, f"since {since}", call.text)))
    return _row(call.name, words, _button("helped", call.participant, "Helped"))


def _room(known: Known) -> list[Row]:
    message, policy = known.status.message, known.policy
    tell = _field("What should everybody read?", message.text if message else "")
    reason = _field("Why? Everybody who waits reads it.", "")
    patience = _field("Seconds", f"{policy.patience_s:g}", "number")
    limit = _field("Waiting jobs of one participant", str(policy.queue_limit), "number")
    most = counted(policy.queue_limit, "waiting job")
    return [
        _row(
            "Message to all",
            message.text if message else "none",
            _button("tell", "", "Tell everybody …", field=tell),
            _button("take_back", "", "Take back") if message else None,
        ),
        _row(
            "Queue",
            f"paused: {policy.paused}" if policy.paused else "runs",
            _button("resume", "", "Resume")
            if policy.paused
            else _button("pause", "", "Pause …", field=reason),
        ),
        _row(
            "Rules",
            f"at most {most} each, patience {policy.patience_s:g} s",
            _button("queue_limit", "", "Waiting jobs …", field=limit),
            _button("patience", "", "Patience …", field=patience),
        ),
    ]


def _model(model: schemas.Model) -> Row:
    loaded = any(slot.state == "ready" for slot in model.slots)
    running = sum(slot.running_jobs for slot in model.slots)
    where = ", ".join(slot.device for slot in model.slots)
    leaves = f"{model.id} leaves {where}. Whoever asks for it next waits for it to be loaded."
    if running or any(slot.holds for slot in model.slots):
        leaves = f"{model.id} is in use: it leaves only once nobody draws with it or holds it."
    hidden = f"Nobody can choose {model.id} any more. Jobs that wait for it are still done."
    reason = _field("Why? People read it beside the model.", "")
    words = model_state(model) + (", pinned" if model.pinned else "")
    if not model.enabled:
        offer = _button("offer", model.id, "Offer")
        return _row(model.title or model.id, words, offer, dim=True)
    return _row(
        model.title or model.id,
        words,
        None if loaded else _button("load", model.id, "Load"),
        _button("evict", model.id, "Evict …", ask=leaves) if loaded else None,
        _button("unpin", model.id, "Unpin") if model.pinned else _button("pin", model.id, "Pin"),
        _button("withdraw", model.id, "Withdraw …", ask=hidden, field=reason),
    )


def _people(known: Known) -> list[Row]:
    kernels = {kernel.id: kernel for kernel in known.kernels}
    return [_person(person, kernels.get(person.kernel or "")) for person in known.participants]


def _person(person: instructor.Participant, kernel: instructor.Kernel | None) -> Row:
    words = [
        f"{person.waiting} waiting" if person.waiting else "",
        f"{person.running} running" if person.running else "",
        f"asks for {', '.join(person.models)}" if person.models else "",
        f"{counted(person.jobs, 'job')}, {person.gpu_s:g} GPU s" if person.jobs else "",
        f"holds {', '.join(person.holds)}" if person.holds else "",
        f"{amount(person.reserved_bytes)} reserved" if person.reserved_bytes else "",
        f"{amount(person.own_bytes)} by own code" if person.own_bytes else "",
        f"at most {person.queue_limit} waiting",
        "" if person.priority == "normal" else f"priority {person.priority}",
    ]
    limit = _field("Waiting jobs (0: none)", str(person.queue_limit), "number")
    priority = _field("Class of their jobs", person.priority, "choice", [*schemas.PRIORITIES])
    restart = None
    if kernel is not None:
        losses = ", ".join(kernel.restart_loses)
        ask = f"The kernel of {person.name} is restarted. Lost: {losses}. Finished pictures stay."
        restart = _button("restart", kernel.id, "Restart kernel …", ask=ask)
    return _row(
        person.name,
        ", ".join(filter(None, words)),
        _button("limit", person.id, "Limit …", field=limit),
        _button("prioritize", person.id, "Priority …", field=priority),
        restart,
    )


def _job(job: schemas.Job) -> Row:
    runs = job.state == "running"
    words = f"{job.model}, " + (f"step {job.step} of {job.steps}" if runs else "waits")
    ask = f"The {'running' if runs else 'waiting'} job of {job.participant} ends without a picture."
    return _row(job.participant, words, _button("cancel", job.id, "Cancel …", ask=ask))


def _gpus(status: schemas.Status) -> list[Row]:
    rows = []
    for device in status.devices:
        cleared = any(
            each.whole and each.device == device.id and each.expires_in_s is None
            for each in status.reservations
        )
        ask = (
            f"Jobs that run on {device.id} finish, its models leave, pinned ones too, and nothing "
            "new starts there until you open it again."
        )
        words = "cleared: nothing starts there" if cleared else f"{device.name}, {device.state}"
        clear = _button("clear", device.id, "Clear for training …", ask=ask)
        opened = _button("open", device.id, "Open again")
        rows.append(_row(device.id, words, opened if cleared else clear))
    return rows + [_reservation(each) for each in status.reservations if each.expires_in_s]


def _reservation(reservation: schemas.Reservation) -> Row:
    who = reservation.participant
    ask = f"{who} loses the room; code of theirs that uses it may fail, and is not told."
    words = describe_reservation(reservation).line()
    return _row(who, words, _button("end_reservation", reservation.id, "Take away …", ask=ask))


def _action(line: instructor.AuditEntry) -> Row:
    when = datetime.fromtimestamp(line.at).strftime("%H:%M")
    details = ", ".join(f"{name}: {value}" for name, value in line.details.items())
    return _row(f"{when} {line.who}", f"{line.action} {line.subject} {details}".strip())
