"""A job as the journal keeps it: one row, from its acceptance to its end."""

import sqlite3
from typing import Any

import msgspec

from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.states import JobState, Priority
from workshop_gpu.worker.protocol import GenerateParams


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `…_at` are seconds since 1970; `images` and `image_bytes` are those on disk."""

    id: str
    participant: str
    name: str
    kernel: str | None = None
    notebook: str = ""
    model: str
    params: GenerateParams
    priority: Priority = Priority.NORMAL
    placement: str = ""
    state: JobState = JobState.QUEUED
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    device: str | None = None
    batch: int = 1
    images: int = 0
    image_bytes: int = 0
    seconds_s: float | None = None
    error: ErrorReport | None = None
    deaths: int = 0
    """How many of the server's lives ended without warning while it ran."""


COLUMNS = Entry.__struct_fields__
_AS_JSON = ("params", "error")

PUT = (
    f"INSERT INTO jobs ({', '.join(COLUMNS)}) "  # noqa: S608 - names of our own
    f"VALUES ({', '.join(f':{column}' for column in COLUMNS)}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in COLUMNS)}"
)
"""Writes a row, or writes it anew at its place: the rows are in the order of acceptance."""


def row_of(entry: Entry) -> dict[str, Any]:
    """The values for `PUT`."""
    row: dict[str, Any] = msgspec.to_builtins(entry)
    for column in _AS_JSON:
        value = row[column]
        row[column] = None if value is None else msgspec.json.encode(value).decode()
    # Paths and names may hold what is no text; it must not keep others' jobs from the disk.
    return {name: _text(value) if isinstance(value, str) else value for name, value in row.items()}


def _text(value: str) -> str:
    return value.encode(errors="replace").decode()


def entry_of(row: sqlite3.Row) -> Entry:
    """The job of a row. Raises msgspec.ValidationError or DecodeError where it makes no sense."""
    values = {name: row[name] for name in row.keys() if name in COLUMNS}  # noqa: SIM118
    for column in _AS_JSON:
        if values[column] is not None:
            values[column] = msgspec.json.decode(values[column])
    return msgspec.convert(values, Entry)
