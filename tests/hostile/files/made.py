"""Bad files that are large or odd, made where they are wanted."""

from __future__ import annotations

import gzip
import os
import socket
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hostile.files.loaders import Loader

MIB = 2**20


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path has 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


ODD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "folder": Path.mkdir,
    "socket": _socket,
    "terabyte": _sparse,
}
"""What lies in a file's place. For every loader."""


def _write(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def _view_without_end(path: Path) -> None:
    """Put a query that never ends in the place of a table."""
    with sqlite3.connect(path) as file:
        file.execute("DROP TABLE families")
        file.execute("DROP TABLE figures")
        file.execute("DROP TABLE runs")
        file.execute(
            "CREATE VIEW runs AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)"
            " SELECT id, 'x' AS created FROM n"
        )
        file.execute("CREATE VIEW families AS SELECT id AS run, 'x' AS name FROM runs")
    file.close()


def _column(statement: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        with sqlite3.connect(path) as file:
            file.execute(statement)
        file.close()

    return change


KEYS = "".join(f"key_{number} = 1\n" for number in range(100_000)).encode()
MANY = "".join(f"key_{number} = 1\n" for number in range(30_000)).encode()
JSON_KEYS = b"{" + b",".join(b'"key_%d": 1' % number for number in range(100_000)) + b"}"
LARGE: dict[str, dict[str, Callable[[Path], object]]] = {
    "toml": {
        "100,000 unknown keys": _write(KEYS),
        "30,000 unknown keys": _write(MANY),
        "a million brackets": _write(b"a = " + b"[" * MIB),
        "a key of a megabyte": _write(b"a" * (MIB // 2) + b" = 1"),
        "a million dots": _write(b"a." * MIB),
    },
    "json": {
        "100,000 unknown keys": _write(JSON_KEYS),
        "a million brackets": _write(b"[" * MIB),
        "a million objects": _write(b'{"a":' * MIB),
        "a key of a megabyte": _write(b'{"' + b"a" * MIB + b'": 1}'),
    },
    "lines": {"a line of 20 MiB": _write(b'{"timestamp": ' + b"1" * 20 * MIB)},
    "text": {},
    "bytes": {},
}
"""For every loader of a kind."""
OWN: dict[str, dict[str, Callable[[Path], object]]] = {
    "log_gz": {
        "bomb": _write(gzip.compress(b"\0" * 100 * MIB, 9)),
        "bomb of many members": _write(gzip.compress(b"\0" * MIB, 9) * 64),
    },
    "history": {
        "view without an end": _view_without_end,
        "deep": _column("UPDATE runs SET reasons = replace(hex(zeroblob(50000)), '0', '[')"),
        "reasons are a number": _column("UPDATE runs SET reasons = '5'"),
        "status is a text": _column("UPDATE runs SET exit_status = 'x'"),
        "infinite figure": _column("UPDATE figures SET value = 9e999"),
        "figure is a text": _column("UPDATE figures SET value = 'x'"),
        "figure of nobody": _column("UPDATE figures SET family = 'nobody'"),
        "later format": _column("PRAGMA user_version = 99"),
        "another program's": _column("PRAGMA application_id = 7"),
    },
}
"""For one loader; what changes a file finds the good one in its place."""


def made(loader: Loader) -> dict[str, Callable[[Path], object]]:
    """Return what makes a loader's bad files, by name; a good file lies there before."""
    large = {} if loader.tolerant else LARGE[loader.kind]
    own = OWN.get(loader.name, {})
    return {
        name: make
        for name, make in {**ODD, **large, **own}.items()
        if not (loader.any_key and " key" in name)
    }
