"""Stores the verdicts of a project's runs in one SQLite file, each run whole or not at all.

Several processes may write at once: each waits for the one before it. A file that is damaged, has
a newer format or belongs to another program is not changed.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from pytest_vllm_gates.bounded import read as bounded_read, syntax
from pytest_vllm_gates.bounded.limits import MIB, excerpt
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.history.types import FILE, HistoryEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

APPLICATION = 0x76474854
"""The `application_id` that identifies this SQLite file: "vGHT"."""
BUSY_S = 30.0
QUERIES_S, STEPS = 60.0, 100_000
"""Seconds that the queries of one read or write may take, checked after this many steps."""
VALUE_BYTES = 16 * MIB
PLAIN = ("created", "promotion", "exit_status", "lane", "against", "machine")
AS_JSON = ("command", "reasons", "versions")
ENTRY = TypeAdapter(HistoryEntry)
# One step for each format, which makes it from the one before. `user_version` counts them.
MIGRATIONS = (
    (
        "CREATE TABLE runs (id INTEGER PRIMARY KEY, created TEXT NOT NULL, command TEXT NOT NULL,"
        " promotion TEXT NOT NULL, reasons TEXT NOT NULL, exit_status INTEGER NOT NULL,"
        " lane TEXT NOT NULL, against TEXT, machine TEXT NOT NULL, versions TEXT NOT NULL)",
        "CREATE TABLE families (run INTEGER NOT NULL REFERENCES runs, name TEXT NOT NULL,"
        " checkpoint TEXT NOT NULL, PRIMARY KEY (run, name))",
        "CREATE TABLE figures (run INTEGER NOT NULL REFERENCES runs, family TEXT NOT NULL,"
        " name TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (run, family, name))",
    ),
)


def append(path: Path, entry: HistoryEntry) -> None:
    """Add a run; if the file is missing, make it and a `.gitignore` for it.

    Raises `UserError` on failure, and leaves the file unchanged.
    """
    with _told(path):
        _make_folder(path)
        with contextlib.closing(_connect(path, "rwc")) as file, _transaction(file):
            _migrate(file, path)
            run = file.execute(
                "INSERT INTO runs (created, command, promotion, reasons, exit_status, lane,"
                " against, machine, versions) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    entry.created,
                    json.dumps(entry.command),
                    entry.promotion,
                    json.dumps(entry.reasons),
                    entry.exit_status,
                    entry.lane,
                    entry.against,
                    entry.machine,
                    json.dumps(entry.versions),
                ),
            ).lastrowid
            file.executemany(
                "INSERT INTO families VALUES (?, ?, ?)",
                [(run, *each) for each in entry.checkpoints.items()],
            )
            file.executemany(
                "INSERT INTO figures VALUES (?, ?, ?, ?)",
                [
                    (run, family, name, value)
                    for family, figures in entry.figures.items()
                    for name, value in figures.items()
                ],
            )


def runs(path: Path, limit: int, family: str | None = None) -> tuple[HistoryEntry, ...]:
    """Return the last runs, of one family or of all, the oldest first.

    Raises `UserError` if the file is missing or cannot be read.
    """
    with _told(path), contextlib.closing(_open(path)) as file:
        rows = file.execute(
            "SELECT * FROM runs WHERE :family IS NULL OR id IN"
            " (SELECT run FROM families WHERE name = :family) ORDER BY id DESC LIMIT :limit",
            {"family": family, "limit": limit},
        ).fetchall()
        return tuple(_entry(file, row) for row in reversed(rows))


def families(path: Path) -> tuple[str, ...]:
    """Return every family of the runs; raises as `runs` does."""
    with _told(path), contextlib.closing(_open(path)) as file:
        rows = file.execute("SELECT DISTINCT name FROM families ORDER BY name")
        return tuple(row["name"] for row in rows)


def _entry(file: sqlite3.Connection, row: sqlite3.Row) -> HistoryEntry:
    checkpoints = file.execute("SELECT * FROM families WHERE run = ? ORDER BY rowid", (row["id"],))
    of = {each["name"]: each["checkpoint"] for each in checkpoints}
    figures: dict[str, dict[str, Any]] = {family: {} for family in of}
    for each in file.execute("SELECT * FROM figures WHERE run = ? ORDER BY rowid", (row["id"],)):
        if not isinstance(each["value"], int | float) or not math.isfinite(each["value"]):
            raise ValueError(f"the figure {excerpt(each['name'])} is {excerpt(each['value'])}")
        figures[each["family"]][each["name"]] = each["value"]
    return ENTRY.validate_python(
        {
            **{name: row[name] for name in PLAIN},
            **{name: syntax.json_value(str(row[name])) for name in AS_JSON},
            "checkpoints": of,
            "figures": figures,
        }
    )


def _make_folder(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ignore = path.with_name(".gitignore")
    # Only in the plugin's own folder: users decide for theirs.
    if path.parent.name == FILE.parent.name and not ignore.exists():
        write_whole(ignore, "# Made by pytest-vllm-gates.\n*\n")


def _open(path: Path) -> sqlite3.Connection:
    """Open an existing file, migrated to the present format."""
    if not path.exists():
        raise UserError(
            f"no history in {path}\na run that reaches a verdict writes it: pytest --model NAME"
        )
    with bounded_read.opened(path):
        pass  # a pipe or a device would keep SQLite waiting
    file = _connect(path, "rw")
    try:
        if _version(file, path) != len(MIGRATIONS):
            with _transaction(file):
                _migrate(file, path)
    except BaseException:
        file.close()
        raise
    return file


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    file = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    file.row_factory = sqlite3.Row
    file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
    deadline = time.monotonic() + QUERIES_S
    # A view instead of a table may be a query that never ends.
    file.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    return file


@contextlib.contextmanager
def _transaction(file: sqlite3.Connection) -> Iterator[None]:
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")


def _version(file: sqlite3.Connection, path: Path) -> int:
    """Return the file's format, 0 for an empty one; raises `UserError` for another program's."""
    application, version = (
        file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    empty = not file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application == 0 and version == 0 and empty:
        return 0
    if application != APPLICATION:
        raise UserError(
            f"{path} is a SQLite file of another program, and was not changed\n"
            "name another file: --gates-history PATH"
        )
    if version > len(MIGRATIONS):
        raise UserError(
            f"{path} has format {version}, of a newer pytest-vllm-gates; this version supports "
            f"formats up to {len(MIGRATIONS)}\nupgrade: pip install -U pytest-vllm-gates"
        )
    return int(version)


def _migrate(file: sqlite3.Connection, path: Path) -> None:
    """Migrate the file to the present format, within the open transaction."""
    missing: Sequence[Sequence[str]] = MIGRATIONS[_version(file, path) :]
    for statement in (each for step in missing for each in step):
        file.execute(statement)
    if missing:
        file.execute(f"PRAGMA application_id = {APPLICATION}")
        file.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the file system as `UserError`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UserError(
            f"the history {path} cannot be opened: {error}\n"
            "another process may have locked it, the folder may be read-only, or the disk full "
            f"(df -h {path.parent}); name another file: --gates-history PATH"
        ) from error
    except (sqlite3.Error, ValueError, KeyError, IndexError) as error:
        raise UserError(
            f"the history {path} is damaged, or not a history: {_reason(error)}\n"
            f"it was not changed; move it away, and the next run starts a new one: "
            f"mv {path} {path}.damaged"
        ) from error
    except OSError as error:
        raise UserError(
            f"the history {path} cannot be written: {error.strerror}\n"
            "name another file: --gates-history PATH, or turn it off: --no-gates-history"
        ) from error
