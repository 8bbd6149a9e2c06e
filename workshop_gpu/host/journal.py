"""The journal: what has been promised is on disk before anybody hears of it.

Writes are gathered while the one before them is on its way to the disk, and then go together: so
a room that submits at once costs a few commits, and the event loop never waits for the disk. Who
tells people something waits until what is known by then is `settled`.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from workshop_gpu.conductor.accounts import Accounts
from workshop_gpu.host import journal_file
from workshop_gpu.host.journal_rows import PUT, Entry, entry_of, row_of

_ACCOUNTS = "accounts"
_ENDED_WELL = "ended_well"


@dataclass
class Batch:
    """What is to be written next: of each job the latest."""

    entries: dict[str, Entry] = field(default_factory=dict)
    forgotten: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.entries or self.forgotten)


class Journal:
    """On the event loop's thread; the disk has a thread of its own.

    `accounts` gives everybody's account, which is written along. `all_entries` gives all that
    should be in the journal, for the case that it breaks and another is begun.
    """

    def __init__(
        self,
        path: Path,
        log: logging.Logger,
        accounts: Callable[[], Accounts],
        all_entries: Callable[[], Iterable[Entry]],
    ) -> None:
        self.path = path
        self.problem = ""
        """What is wrong with the journal, in words; "" while all is well."""
        self.ended_well = True
        """Whether the life before this one closed the journal, and did not just end."""
        self._log = log
        self._accounts = accounts
        self._all_entries = all_entries
        self._connection: sqlite3.Connection | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="workshop-gpu-journal")
        self._batch = Batch()
        self._asked = self._written = 0
        self._work = asyncio.Event()
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._fault = ""
        self._unwritten: set[str] = set()
        """The jobs of the last attempt that failed, also while they are tried again."""

    # life

    @property
    def closed(self) -> bool:
        """Whether nothing is written any more."""
        return self._closing and (self._task is None or self._task.done())

    async def open(self) -> tuple[list[Entry], Accounts]:
        """All jobs of earlier lives in the order of their acceptance, and the accounts."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._disk, self._open)
        self._task = loop.create_task(self._write_on())
        return found

    async def close(self) -> None:
        """Writes what is left. A second call does nothing."""
        self._closing = True
        self._work.set()
        if self._task is not None:
            await self._task
            self._task = None
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._close)
            self._connection = None
        self._disk.shutdown(wait=False)

    # writing

    def put(self, entry: Entry, *, awaited: bool = True) -> None:
        """The job is as the entry says, from now on. Nobody need wait for what the next life of
        the server finds out without the journal too: that is not `awaited`."""
        self._batch.entries[entry.id] = entry
        self._ask(awaited=awaited)

    def forget(self, jobs: Iterable[str]) -> None:
        """The jobs are not kept any longer."""
        for job in jobs:
            self._batch.entries.pop(job, None)
            self._batch.forgotten[job] = None
        self._ask()

    def retry(self) -> None:
        """Tries again to write what could not be written."""
        if self._fault and self._batch:
            self._ask()

    def fault_of(self, job: str) -> str:
        """Why the job is not in the journal, as of the last attempt; "" where it is."""
        if job in self._unwritten:
            return self._fault
        return "the journal is closed" if self.closed and job in self._batch.entries else ""

    async def settled(self) -> None:
        """Returns once all that was put before and is awaited is on the disk, or was tried in
        vain."""
        asked = self._asked
        while self._written < asked and self._task is not None and not self._task.done():
            await self._progress.wait()

    def _ask(self, *, awaited: bool = True) -> None:
        self._asked += awaited
        self._work.set()

    async def _write_on(self) -> None:
        while self._batch or not self._closing:
            await self._work.wait()
            self._work.clear()
            await self._write()
            if self._fault and self._closing:
                break
        self._move_on()

    async def _write(self) -> None:
        batch, self._batch = self._batch, Batch()
        asked = self._asked
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._disk, self._commit, batch, self._accounts()
            )
        except Exception as error:
            # Also a fault of ours must not end the writing: nobody would be told any more.
            await self._failed(batch, error)
        else:
            if self._fault:
                self._log.info("%s is written again", self.path)
            self._fault = ""
            self._unwritten.clear()
        self._written = asked
        self._move_on()

    async def _failed(self, batch: Batch, error: Exception) -> None:
        """What came meanwhile is newer than what was not written."""
        batch.entries.update(self._batch.entries)
        batch.forgotten.update(self._batch.forgotten)
        self._batch, self._unwritten = batch, set(batch.entries)
        if journal_file.is_broken(error):
            await asyncio.get_running_loop().run_in_executor(self._disk, self._begin_anew, error)
            self._batch = Batch({entry.id: entry for entry in self._all_entries()})
            await self._write()
            return
        if str(error) != self._fault:
            self._log.error("%s cannot be written: %s", self.path, error)
        self._fault = str(error)

    def _move_on(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    # in the disk's thread

    def _open(self) -> tuple[list[Entry], Accounts]:
        self._connection, self.problem = journal_file.open_journal(self.path, self._log)
        try:
            self.ended_well = self._forget_the_end()
            return self._read_entries(), self._read_accounts()
        except sqlite3.Error as error:
            self._begin_anew(error)
            return [], Accounts()

    def _read_entries(self) -> list[Entry]:
        assert self._connection is not None
        entries: list[Entry] = []
        unreadable = 0
        for row in self._connection.execute("SELECT * FROM jobs ORDER BY rowid"):
            try:
                entries.append(entry_of(row))
            except (msgspec.MsgspecError, TypeError):
                unreadable += 1
        if unreadable:
            self._log.error("%s: %d of its jobs cannot be read", self.path, unreadable)
        return entries

    def _read_accounts(self) -> Accounts:
        assert self._connection is not None
        found = self._connection.execute("SELECT value FROM kept WHERE name = ?", (_ACCOUNTS,))
        try:
            return msgspec.json.decode(next(found)["value"], type=Accounts)
        except (StopIteration, msgspec.MsgspecError):
            return Accounts()

    def _forget_the_end(self) -> bool:
        """Says whether the last life noted its end. This one has not ended yet."""
        assert self._connection is not None
        query = "DELETE FROM kept WHERE name = ?"
        try:
            return self._connection.execute(query, (_ENDED_WELL,)).rowcount > 0
        except sqlite3.OperationalError:  # a full disk: jobs cannot be blamed for that
            return True

    def _close(self) -> None:
        assert self._connection is not None
        with suppress(sqlite3.Error):
            kept = (_ENDED_WELL, "true")
            self._connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", kept)
        self._connection.close()

    def _commit(self, batch: Batch, accounts: Accounts) -> None:
        connection = self._connection
        if connection is None:
            raise sqlite3.OperationalError("it is closed")
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(PUT, [row_of(entry) for entry in batch.entries.values()])
            forgotten = [(job,) for job in batch.forgotten]
            connection.executemany("DELETE FROM jobs WHERE id = ?", forgotten)
            kept = (_ACCOUNTS, msgspec.json.encode(accounts).decode())
            connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", kept)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _begin_anew(self, error: Exception) -> None:
        """The file broke while it was used."""
        assert self._connection is not None
        with suppress(sqlite3.Error):
            self._connection.close()
        try:
            problem = journal_file.set_aside(self.path, str(error))
        except OSError as fault:
            problem = f"{self.path} is broken ({error}) and stays in the way: {fault.strerror}"
        self._log.error("%s. A new journal begins.", problem)
        self._connection, further = journal_file.open_journal(self.path, self._log)
        self.problem = further or problem
