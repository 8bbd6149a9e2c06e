"""The journal's file: opened, brought up to date, set aside where it is broken."""

import logging
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE jobs (
            id TEXT PRIMARY KEY, participant TEXT NOT NULL, name TEXT NOT NULL, kernel TEXT,
            model TEXT NOT NULL, params TEXT NOT NULL, priority INTEGER NOT NULL,
            state TEXT NOT NULL, submitted_at REAL NOT NULL, started_at REAL, ended_at REAL,
            device TEXT, batch INTEGER NOT NULL, images INTEGER NOT NULL,
            image_bytes INTEGER NOT NULL, seconds_s REAL, error TEXT
        )
        """,
    ),
    (
        "ALTER TABLE jobs ADD COLUMN notebook TEXT NOT NULL DEFAULT ''",
        "CREATE TABLE kept (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    ),
    ("ALTER TABLE jobs ADD COLUMN placement TEXT NOT NULL DEFAULT ''",),
    ("ALTER TABLE jobs ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0",),
)
"""What makes each version of the schema out of the one before; a file says which it has
(`user_version`). What was released once is never changed."""

_LOCK_WAIT_S = 2.0
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


class UnusableFile(Exception):
    """The file is whole, but not one that this version can use."""


def is_broken(error: Exception) -> bool:
    """Whether the file's content is what is wrong: trying again will not help."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return isinstance(error, UnusableFile) or code & 0xFF in _BROKEN


def open_journal(path: Path, log: logging.Logger) -> tuple[sqlite3.Connection, str]:
    """The journal, and what is wrong with it in words ("" where nothing is).

    Blocking. A broken file is set aside under a name that says so, and a new one begun. Where
    there can be none, the journal is in memory: the server works, and loses its jobs with its
    end.
    """
    problem = ""
    try:
        try:
            return _opened(path), ""
        except (sqlite3.Error, UnusableFile) as error:
            if not is_broken(error):
                raise
            problem = set_aside(path, str(error))
            log.error("%s. A new journal begins.", problem)
            return _opened(path), problem
    except (sqlite3.Error, OSError) as error:
        reason = f"{path} cannot be used: {error}"
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            reason = f"{path} is used by another server: give each a data_folder of its own"
        reason = f"{problem + '. ' if problem else ''}{reason}. Jobs are lost when this server ends"
        log.error("%s.", reason)
        return _opened(None), reason


def set_aside(path: Path, reason: str) -> str:
    """Renames a file that cannot be used, with what belongs to it; says so in words. Raises
    OSError."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.stem}.broken-{stamp}{path.suffix}")
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
    path.replace(aside)
    return f"{path} was broken ({reason}); it is now {aside.name}"


def _opened(path: Path | None) -> sqlite3.Connection:
    """Raises sqlite3.Error, OSError or UnusableFile."""
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    connection = sqlite3.connect(
        path or ":memory:",
        timeout=_LOCK_WAIT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.row_factory = sqlite3.Row
        # A text that is none costs its own line and no other.
        connection.text_factory = lambda text: text.decode(errors="replace")
        # One server has the file, and no other process reads along: so the log needs no shared
        # memory, which network file systems do not have. The lock ends with the process.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        # A commit is on the disk when it returns: it outlives a power cut too.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        _check(connection)
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise UnusableFile(found)


def _migrate(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise UnusableFile(f"a newer Workshop GPU wrote it, schema {version}")
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
