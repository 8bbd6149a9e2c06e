"""Jobs for the journal's tests."""

import logging
import sqlite3
from pathlib import Path

from workshop_gpu.conductor.accounts import Accounts
from workshop_gpu.host.image_store import ImageStore
from workshop_gpu.host.input_store import InputStore
from workshop_gpu.host.journal import Journal
from workshop_gpu.host.journal_rows import Entry
from workshop_gpu.host.keeper import Keeper
from workshop_gpu.host.records import JobRecords
from workshop_gpu.host.retention import Limits
from workshop_gpu.worker.protocol import GenerateParams

LOG = logging.getLogger("tests.journal")
PARAMS = GenerateParams(prompt="a", seed=1, steps=2, guidance=3.0, width=64, height=64)
PNG = b"pixels" + b"IEND\xaeB`\x82"


def an_id(number: int) -> str:
    return f"{number:032x}"


def an_entry(number: int, **changes: object) -> Entry:
    values = {
        "id": an_id(number),
        "participant": "kernel-ada",
        "name": "ada",
        "kernel": "kernel-ada",
        "model": "shapes",
        "params": PARAMS,
        "submitted_at": 1000.0 + number,
    }
    return Entry(**(values | changes))  # type: ignore[arg-type]


def a_journal(path: Path, *entries: Entry) -> Journal:
    """`entries` are those that the server knows."""
    accounts = Accounts(3.0, {"kernel-ada": 4.0})
    return Journal(path, LOG, lambda: accounts, lambda: list(entries))


def a_keeper(folder: Path, limits: Limits | None = None) -> Keeper:
    images = ImageStore(folder / "images")
    records = JobRecords()
    stores = (images, InputStore(folder / "inputs", records))
    path = folder / "journal.sqlite3"
    return Keeper(path, records, *stores, limits or Limits(), Accounts, LOG)


async def written(path: Path, *entries: Entry) -> None:
    """A life of the server that leaves these entries."""
    journal = a_journal(path)
    await journal.open()
    for entry in entries:
        journal.put(entry)
    await journal.close()


def crashed(path: Path) -> None:
    """The life of the server that wrote this ended without a word."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM kept WHERE name = 'ended_well'")
    connection.close()


async def read(path: Path) -> list[Entry]:
    """What the next life of the server finds."""
    journal = a_journal(path)
    entries, _ = await journal.open()
    await journal.close()
    return entries
