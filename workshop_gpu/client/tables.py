"""Lists that show themselves as tables: HTML in notebooks, plain text elsewhere.

Colours are shades of the text's own colour, so that they fit every theme.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import overload

from workshop_gpu.api import schemas
from workshop_gpu.client.pool_words import pool_line, pool_parts
from workshop_gpu.client.words import about, amount, describe_reservation, load_words
from workshop_gpu.conductor.effects import Holder

_TABLE = "border-collapse:collapse;margin:2px 0 8px 0"
_HEAD = "text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid;font-weight:600"
_CELL = "text-align:left;padding:3px 14px 3px 0;vertical-align:top"
_SHORT = 20
"""Cells of so few characters are not broken into lines: the long ones beside them are."""
QUIET = "opacity:0.65"
_SHADES = {  # of a GPU's memory: colours that carry on dark and on light
    "weights": "#4f7fd9",
    "shared": "#7fa3e6",
    "working": "#e08a3c",
    "cache": "#c9a27a",
    "freeing": "#b9a04a",
    "reservation": "#9a6fc9",
    "notebook": "#3f9e8f",
    "foreign": "#8a8a8a",
    "kept_free": "rgba(128,128,128,0.45)",
    "margin": "rgba(128,128,128,0.7)",
}

_EVERYTHING = "everything on the GPU"
"""The placement that needs no words: the server's name for it."""

Row = Sequence[str]


def html_table(head: Row, rows: Sequence[Row]) -> str:
    """Cells are text, not HTML."""
    top = "".join(f'<th style="{_HEAD}">{escape(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_cell(text)}">{escape(text)}</td>' for text in row) + "</tr>"
        for row in rows
    )
    return f'<table style="{_TABLE}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def _cell(text: str) -> str:
    return f"{_CELL};white-space:nowrap" if len(text) <= _SHORT else _CELL


def text_table(head: Row, rows: Sequence[Row]) -> str:
    """Columns as wide as their widest cell, two spaces between."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def model_state(model: schemas.Model) -> str:
    """A model's state as a person would say it."""
    if not model.enabled:
        return f"switched off: {model.reason}" if model.reason else "switched off"
    match model.state:
        case "ready":
            ready = [slot for slot in model.slots if slot.state == "ready"]
            how = slot_extras(ready[0]) if ready else ""
            return f"ready on {', '.join(slot.device for slot in ready)}" + (how and f", {how}")
        case "loading" | "downloading":
            if model.total_bytes > 0:
                return f"{model.state} {load_words(model)}"
            return model.state
        case "absent":
            return "on disk"
        case "failed":
            error = next((slot.error for slot in model.slots if slot.error), None)
            why = f" ({error.message.rstrip('.')})" if error else ""
            return f"did not load{why}; ask for it to try again"
        case "unavailable":
            return f"not usable: {model.problem}" if model.problem else "not usable"
        case _:
            return model.state


def slot_extras(slot: schemas.Slot) -> str:
    """What is special about a model there: "text encoders staged, compiled, with flowers, retro";
    "" for a model that has all its weights on the GPU and nothing beside them."""
    where = "" if slot.placement == _EVERYTHING else slot.placement
    compiled = "compiled" if slot.compiled else ""
    with_loras = f"with {', '.join(slot.loras)}" if slot.loras else ""
    return ", ".join(filter(None, (where, compiled, with_loras)))


def device_words(device: schemas.Device) -> str:
    """What a device does that does not work, and why; "" for one that works."""
    because = f" ({device.reason})" if device.reason else ""
    match device.state:
        case "ready":
            return ""
        case "lost" if device.retry_s is None:
            return f"cannot be used{because}"
        case "lost":
            return f"cannot be used{because}; it is tried again every {device.retry_s:.0f} s"
        case "starting":
            starts = "being started again" if because else "starting"
            return f"its worker is {starts}{because}"
        case other:
            return f"{other}{because}"


class ModelTable(Sequence[schemas.Model]):
    """The catalogue: a list of models that also takes an id (`wg.models()["shapes"]`)."""

    _COLUMNS = ("Model", "Title", "State", "Size", "Steps", "Picture", "LoRAs")

    def __init__(self, models: list[schemas.Model], problems: list[str]) -> None:
        self._models = models
        self.problems = problems
        """Mistakes in the instructor's models.toml."""

    @overload
    def __getitem__(self, key: int | str) -> schemas.Model: ...
    @overload
    def __getitem__(self, key: slice) -> list[schemas.Model]: ...
    def __getitem__(self, key: int | str | slice) -> schemas.Model | list[schemas.Model]:
        if isinstance(key, str):
            for model in self._models:
                if model.id == key:
                    return model
            raise KeyError(key)
        return self._models[key]

    def __iter__(self) -> Iterator[schemas.Model]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    @property
    def ids(self) -> list[str]:
        return [model.id for model in self._models]

    @property
    def _head(self) -> Row:
        """Without the last column where no model has a LoRA."""
        return self._COLUMNS if any(model.loras for model in self._models) else self._COLUMNS[:-1]

    def _rows(self) -> list[Row]:
        rows = [
            (
                model.id,
                model.title,
                model_state(model),
                amount(model.bytes) if model.bytes else "",
                f"{model.defaults.get('steps', '')}",
                f"{model.defaults.get('width', '?')}×{model.defaults.get('height', '?')}",
                ", ".join(lora.id for lora in model.loras),
            )
            for model in self._models
        ]
        return [row[: len(self._head)] for row in rows]

    def _repr_html_(self) -> str:
        if not self._models:
            return "<p>The instructor offers no models at present.</p>"
        return html_table(self._head, self._rows()) + _problems_html(self.problems)

    def __repr__(self) -> str:
        if not self._models:
            return "The instructor offers no models at present."
        return "\n".join([text_table(self._head, self._rows()), *self.problems])


class StatusView:
    """The server's state at one moment; `status` is the answer itself."""

    _HEAD = ("", "Who", "Model", "Now")

    def __init__(self, status: schemas.Status) -> None:
        self.status = status

    @property
    def devices(self) -> list[schemas.Device]:
        return self.status.devices

    @property
    def running(self) -> list[schemas.Job]:
        return self.status.running

    @property
    def waiting(self) -> list[schemas.Job]:
        return self.status.waiting

    def _rows(self) -> list[Row]:
        running = [
            ("runs", _who(job), job.model, f"step {job.step} of {job.steps}")
            for job in self.running
        ]
        waiting = [
            (
                str(job.position),
                _who(job),
                job.model,
                _wait_words(job),
            )
            for job in self.waiting
        ]
        return [*running, *waiting, *map(reservation_row, self.status.reservations)]

    def _repr_html_(self) -> str:
        parts = [_device_html(device) for device in self.devices]
        if not parts:
            parts = ["<p>This server has no GPU that could work.</p>"]
        parts.append(_pool_html(self.status.pool))
        if self.status.paused:
            parts.append(f"<p>The queue is paused: {escape(self.status.paused)}</p>")
        rows = self._rows()
        if rows:
            parts.append(html_table(self._HEAD, rows))
        else:
            parts.append(f'<p style="{QUIET}">Nobody waits: the next picture is yours.</p>')
        return "".join(parts) + _problems_html(self.status.problems)

    def __repr__(self) -> str:
        lines: list[str] = []
        for device in self.devices:
            lines.append(_device_line(device))
            extras = _extras(device)
            lines += [
                f"  {amount(part.bytes):>9}  {_holder(part)}{_in_brackets(part, extras)}"
                for part in device.holders
            ]
        if pool := pool_line(self.status.pool):
            lines.append(pool)
        lines += [f"  {amount(size):>9}  {what}" for what, size in pool_parts(self.status.pool)]
        if self.status.paused:
            lines.append(f"The queue is paused: {self.status.paused}")
        rows = self._rows()
        lines.append(text_table(self._HEAD, rows) if rows else "Nobody waits.")
        return "\n".join([*lines, *self.status.problems])


def _wait_words(job: schemas.Job) -> str:
    """When it starts, and what it waits for; why the queue is paused stands above."""
    wait_s = job.expected_wait_s
    words = "waits" if wait_s is None else f"starts {about(wait_s)}"
    match job.waiting_for:
        case "pause":
            reason = ""
        case "download":
            reason = "its model is being downloaded"
        case _:
            reason = job.reason.removesuffix(".")
    return f"{words} ({reason})" if reason else words


def _who(asked: schemas.Job | schemas.Reservation) -> str:
    return f"{asked.participant} (you)" if asked.mine else asked.participant


def reservation_row(reservation: schemas.Reservation) -> Row:
    """Place, who, what for, and how it stands."""
    words = describe_reservation(reservation)
    waits = reservation.state == "waiting"
    place = str(reservation.position or "") if waits else "has"
    return (place, _who(reservation), "(own code)", words.line())


def _holder(part: Holder) -> str:
    kind = part.kind.replace("_", " ")
    return f"{kind}: {part.name}" if part.name and part.name != part.kind else kind


def _extras(device: schemas.Device) -> dict[str, str]:
    """What is special about each model there that stands ready."""
    return {slot.model: slot_extras(slot) for slot in device.slots if slot.state == "ready"}


def _in_brackets(part: Holder, extras: dict[str, str]) -> str:
    words = extras.get(part.name) if part.kind == "weights" else None
    return f" ({words})" if words else ""


def _device_line(device: schemas.Device) -> str:
    if device.state != "ready":
        return f"{device.id} ({device.name}): {device_words(device)}"
    free = f"{amount(max(0, device.free_bytes))} of {amount(device.total_bytes)} free"
    return f"{device.id} ({device.name}): {free}"


def _device_html(device: schemas.Device) -> str:
    total = max(1, device.total_bytes)
    extras = _extras(device)
    bars = "".join(
        f'<div title="{escape(_holder(part))}: {amount(part.bytes)}" style="height:100%;'
        "box-sizing:border-box;min-width:3px;border-right:1px solid rgba(255,255,255,0.8);"
        f'width:{100 * part.bytes / total:.2f}%;background:{_SHADES.get(part.kind, "#8a8a8a")}">'
        "</div>"
        for part in device.holders
        if part.bytes > 0
    )
    # Only the words are quiet: a square is of the same colour as its piece of the bar.
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="color:{_SHADES.get(part.kind, "#8a8a8a")}">'
        f'■</span></span> <span style="{QUIET};margin-right:8px">{escape(_holder(part))} '
        f"{amount(part.bytes)}{escape(_in_brackets(part, extras))}</span>"
        for part in device.holders
        if part.bytes > 0
    )
    frame = (
        "display:flex;height:12px;max-width:480px;overflow:hidden;border-radius:6px;"
        "background:rgba(128,128,128,0.25);margin:3px 0"
    )
    return (
        f'<div style="margin:4px 0 10px 0"><div><b>{escape(device.id)}</b> '
        f"{escape(_device_line(device).partition(' ')[2])}</div>"
        f'<div style="{frame}">{bars}</div>'
        f'<div style="font-size:90%">{legend}</div></div>'
    )


def _pool_html(pool: schemas.Pool) -> str:
    line = pool_line(pool)
    told = " · ".join(f"{what} {amount(size_bytes)}" for what, size_bytes in pool_parts(pool))
    parts = f'<div style="font-size:90%">{escape(told)}</div>' if told else ""
    return f'<div style="{QUIET};margin:4px 0 10px 0">{escape(line)}{parts}</div>' if line else ""


def _problems_html(problems: list[str]) -> str:
    return "".join(f"<p>⚠ {escape(problem)}</p>" for problem in problems)
