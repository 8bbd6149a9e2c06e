"""What the status widget shows: plain data, made from the server's status by pure functions."""

from typing import Any

from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.client.tables import device_words, slot_extras
from workshop_gpu.client.words import amount, amount_of, describe_reservation, load_words

_KINDS = {
    "weights": "",
    "shared": "shared by ",
    "freeing": "leaving: ",
    "working": "working for ",
    "cache": "worker's cache",
    "reservation": "reserved by ",
    "notebook": "own code of ",
    "foreign": "",
    "kept_free": "stays free beside ",
    "margin": "safety margin",
}
_ORDER = list(_KINDS)
_NAMELESS = ("cache", "margin")
_MOST_NEWS = 12
_COLOURS = 6
"""Models beyond so many on one GPU share colours."""
_MOST_WAITING = 25
"""So many of those who wait are shown, and one's own."""


def status_view(status: schemas.Status, *, live: bool = True) -> dict[str, Any]:
    """All that the front end draws. `live` False: the server does not answer at present."""
    shown = [job for i, job in enumerate(status.waiting) if i < _MOST_WAITING or job.mine]
    return {
        "live": live,
        "paused": status.paused,
        "message": status.message.text if status.message else "",
        "devices": [_device(each) for each in status.devices],
        "queue": [
            *(_running(job) for job in status.running),
            *(_waiting(job) for job in shown),
            *(_reserved(each) for each in status.reservations),
        ],
        "more": len(status.waiting) - len(shown),
        "news": [_news(item) for item in status.news[:_MOST_NEWS]],
        "summary": summary(status),
    }


def summary(status: schemas.Status) -> str:
    """The room in one line: "1.2 of 80.0 GB free · 3 wait · you: next"."""
    parts = []
    total_bytes = sum(device.total_bytes for device in status.devices)
    if total_bytes:
        free_bytes = sum(max(0, device.free_bytes) for device in status.devices)
        parts.append(f"{amount_of(free_bytes, total_bytes)} free")
    waiting = len(status.waiting)
    parts.append("nobody waits" if not waiting else f"{waiting} wait{'s' * (waiting == 1)}")
    mine = next((job for job in status.waiting if job.mine), None)
    if mine is not None:
        parts.append("you: next" if mine.position == 1 else f"you: number {mine.position}")
    elif any(job.mine for job in status.running):
        parts.append("your picture is being made")
    return " · ".join(parts)


def _device(device: schemas.Device) -> dict[str, Any]:
    total_bytes = max(1, device.total_bytes)
    slots = {slot.model: slot for slot in device.slots}
    parts = [
        _part(part.kind, part.name, part.bytes, total_bytes, slots.get(part.name))
        for part in sorted(device.holders, key=lambda part: _rank(part.kind))
        if part.bytes > 0
    ]
    shown = {part["name"] for part in parts if part["kind"] == "weights"}
    parts += [
        _part("weights", slot.model, 0, total_bytes, slot)
        for slot in device.slots
        if slot.model not in shown and slot.state != "leaving"
    ]
    models = [part for part in parts if part["kind"] == "weights"]
    for number, part in enumerate(models):
        part["colour"] = f"model-{number % _COLOURS}"
    return {
        "id": device.id,
        "name": device.name,
        "state": device_words(device),
        "free": f"{amount_of(max(0, device.free_bytes), device.total_bytes)} free",
        "free_share": max(0, device.free_bytes) / total_bytes,
        "parts": parts,
    }


def _rank(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _part(
    kind: str, name: str, size_bytes: int, total_bytes: int, slot: schemas.Slot | None
) -> dict[str, Any]:
    label = _KINDS.get(kind, f"{kind}: ")
    slot = slot if kind == "weights" else None
    done = None
    if slot is not None and slot.state == "loading" and slot.total_bytes:
        done = min(1.0, slot.done_bytes / slot.total_bytes)
    return {
        "kind": kind,
        "colour": kind,
        "name": name,
        "label": label if kind in _NAMELESS else f"{label}{name}",
        "size": amount(size_bytes) if size_bytes else "",
        "share": size_bytes / total_bytes,
        "words": "" if slot is None else _slot_words(slot),
        "done": done,
    }


def _slot_words(slot: schemas.Slot) -> str:
    """What a model does there, as people say it."""
    match slot.state.value:
        case "loading" if slot.total_bytes:
            return f"loading, {load_words(slot)}"
        case "loading":
            return "loading"
        case "failed":
            return f"failed: {slot.error.message}" if slot.error else "failed"
        case "leaving":
            return "leaving"
    words = []
    if slot.running_jobs:
        words.append("draws")
    if slot.holds:
        words.append(f"held by {slot.holds}")
    if slot.pinned:
        words.append("pinned")
    state = ", ".join(words) or "ready"
    return " · ".join(filter(None, (state, slot_extras(slot))))


def _running(job: schemas.Job) -> dict[str, Any]:
    step = f"step {job.step} of {job.steps}" if job.step else "starts"
    return _row("runs", job, step, done=job.step / max(1, job.steps))


def _waiting(job: schemas.Job) -> dict[str, Any]:
    """While the queue is paused nobody knows for how long; why, stands above."""
    paused = job.waiting_for == "pause"
    words, wait_s = ("paused", None) if paused else (job.reason, job.expected_wait_s)
    waits = "its model is being downloaded" if job.waiting_for == "download" else "waits"
    return _row(str(job.position or ""), job, words or waits, wait_s=wait_s)


def _row(
    place: str,
    job: schemas.Job,
    words: str,
    *,
    wait_s: float | None = None,
    done: float | None = None,
) -> dict[str, Any]:
    return {
        "id": job.id,
        "place": place,
        "who": job.participant,
        "mine": job.mine,
        "what": job.model,
        "words": words,
        "wait_s": wait_s,
        "done": done,
    }


def _reserved(reservation: schemas.Reservation) -> dict[str, Any]:
    words = describe_reservation(reservation)
    granted = reservation.state == "granted"
    return {
        "id": reservation.id,
        "place": "has" if granted else str(reservation.position or ""),
        "who": reservation.participant,
        "mine": reservation.mine,
        "what": "own code",
        "words": words.text,
        "wait_s": None if granted else words.wait_s,
        "done": None,
    }


def _news(item: schemas_room.News) -> dict[str, Any]:
    return {"at": item.at, "kind": item.kind, "text": item.text}
