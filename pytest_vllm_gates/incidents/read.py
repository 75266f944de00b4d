"""Reads an incident, which may come from a stranger, and refuses one that is not intact.

Nothing in an incident is executed, imported or unpacked: its files are only read, and they must
match the list in `incident.json`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from pytest_vllm_gates.bounded import read as bounded_read, syntax
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.types import FORMAT, LAYOUT, NAME, VERSION, Incident, Send

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INCIDENT_BYTES = 8 * 2**20
FILES_BYTES = 64 * 2**20
FILES = 5000
LATEST_S = 1e9


@dataclass(frozen=True)
class IncidentFolder:
    """An incident that was read: its folder, and the contents of its `incident.json`."""

    folder: Path
    incident: Incident

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    def send(self, name: str) -> Send:
        """Return the send of that name."""
        return next(send for send in self.incident.sends if send.name == name)

    def body(self, send: Send) -> bytes:
        """Return the exact bytes of a request's body."""
        return _data(self.folder, send.body) if send.body else b""

    def text(self, name: str) -> str | None:
        """Return one of the incident's text files; None if it has no file of that name."""
        if name not in self.incident.files:
            return None
        return bounded_read.text(self.folder / name, FILES_BYTES)

    def names(self, folder: str) -> list[str]:
        """Return the incident's files in one of its folders, by their paths in the incident."""
        return [name for name in self.incident.files if name.startswith(f"{folder}/")]

    def sent(self, send: Send) -> Sent:
        """Return a send with its response; raises `UserError` for an invalid response."""
        answer = ResponseHead()
        pieces: list[tuple[float, bytes]] = []
        if send.response:
            lines = _data(self.folder, send.response).splitlines()
            try:
                head, *piece_lines = [_object(line) for line in lines]
                pieces = [(_seconds(line["at_s"]), _piece(line)) for line in piece_lines]
                answer = ResponseHead.model_validate(head)
            except (ValueError, KeyError, TypeError) as error:
                raise _refused(
                    self.folder, f"{send.response} is not a valid response: {error}"
                ) from error
        return Sent(
            method=send.method,
            path=send.path,
            headers=send.headers,
            body=self.body(send),
            name=send.name,
            status=send.status,
            response_headers=answer.headers,
            pieces=tuple(pieces),
            error=send.error,
            cut_bytes=answer.cut_bytes,
        )


def read(path: Path) -> IncidentFolder:
    """Check that an incident is whole and contains nothing else, and read it.

    Raises `UserError` with the reason for an incident that is truncated, has another version, was
    changed by hand, is too large, or contains or names anything but its own data.
    """
    folder = path.parent if path.name == NAME else path
    if not folder.is_dir():
        raise UserError(
            f"no incident at {path}: an incident is a folder with {NAME}; unpack it if it is packed"
        )
    folder = folder.resolve()
    sizes = _sizes(folder)
    if NAME not in sizes:
        raise _refused(folder, f"it has no {NAME}: is it truncated, or is this another folder?")
    incident = _incident(folder, sizes.pop(NAME))
    missing = sorted(set(incident.files) - set(sizes))
    if missing:
        raise _refused(folder, f"it is truncated: {missing[0]} is missing")
    if more := sorted(set(sizes) - set(incident.files)):
        raise _refused(folder, f"it contains {more[0]!r}, which {NAME} does not list")
    for name, file in incident.files.items():
        if sizes[name] < file.bytes:
            raise _refused(
                folder, f"it is truncated: {name} has {sizes[name]} bytes of {file.bytes}"
            )
        if hashlib.sha256(_data(folder, name)).hexdigest() != file.sha256:
            raise _refused(folder, f"{name} was changed since it was written")
    return IncidentFolder(folder, incident)


def _incident(folder: Path, size: int) -> Incident:
    """Return the contents of incident.json, checked for consistency."""
    if size > INCIDENT_BYTES:
        raise _refused(folder, f"{NAME} has {size} bytes, more than {INCIDENT_BYTES}")
    try:
        document = bounded_read.json(folder / NAME, INCIDENT_BYTES, unique=True, whole=True)
    except FileError as error:
        raise _refused(folder, f"{NAME} is truncated or not JSON: {error.why}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _refused(folder, f"{NAME} does not have the format {FORMAT}")
    if type(document.get("version")) is not int or document["version"] != VERSION:
        raise _refused(
            folder,
            f"it has format version {excerpt(document.get('version'))}, but this release reads "
            f"version {VERSION}: replay it with the pytest-vllm-gates that wrote it "
            f"({excerpt(document.get('tool'))})",
        )
    if document.pop("sha256", None) != digest(document):
        raise _refused(folder, f"{NAME} was changed since it was written")
    try:
        incident = Incident.model_validate_json(json.dumps(document))
    except (ValidationError, ValueError, RecursionError) as error:
        raise _refused(folder, f"{NAME} does not fit the format: {error}") from error
    for name in incident.files:
        allow(folder, name)
    _check_references(folder, incident)
    return incident


def _check_references(folder: Path, incident: Incident) -> None:
    names = [send.name for send in incident.sends]
    for send in incident.sends:
        for file in (send.body, send.response):
            if file is not None and file not in incident.files:
                raise _refused(folder, f"send {send.name!r} names {file!r}, which is not listed")
        if not send.path.startswith("/") or not send.method.isalpha():
            raise _refused(folder, f"send {send.name!r} is not a request below a server's root")
    if len(set(names)) < len(names):
        raise _refused(folder, "two sends have the same name")
    for cell in incident.walk.cells if incident.walk else ():
        used = {cell.whole, cell.streamed, cell.widened, cell.unstopped} - {None}
        if unknown := used - set(names):
            raise _refused(folder, f"a cell names the send {unknown.pop()!r}, which does not exist")


def _sizes(folder: Path) -> dict[str, int]:
    """Return the size of every file in a folder, by its path there, without opening any.

    Raises `UserError` for anything but regular files.
    """
    sizes: dict[str, int] = {}
    total = 0
    for entry in _entries(folder):
        name = Path(entry.path).relative_to(folder).as_posix()
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
            raise _refused(folder, f"{name!r} is {kind}")
        sizes[name] = status.st_size
        total += status.st_size
        if total > FILES_BYTES + INCIDENT_BYTES or len(sizes) > FILES:
            raise _refused(
                folder,
                f"it is larger than {FILES_BYTES + INCIDENT_BYTES} bytes or {FILES} files",
            )
        if name != NAME:
            allow(folder, name)
    return sizes


def _entries(folder: Path, depth: int = 2) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and depth > 1:
                yield from _entries(Path(entry.path), depth - 1)
            else:
                yield entry


def allow(folder: Path, name: str) -> None:
    """Refuse a path that leads out of the incident, and a file that incidents do not have."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise _refused(folder, f"{name!r} leads out of it")
    if not LAYOUT.fullmatch(name):
        raise _refused(
            folder, f"{name!r} is not a file of an incident, which contains data, not programs"
        )


def _refused(folder: Path, why: str) -> UserError:
    return UserError(
        f"the incident {folder} is refused: {why}\n"
        "copy it again, unchanged, from where it was written; git must not convert its line ends"
    )


class ResponseHead(toml.Record):
    """The first line of a response's file."""

    status: int | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    cut_bytes: int = Field(default=0, ge=0)


def _data(folder: Path, name: str) -> bytes:
    return bounded_read.data(folder / name, FILES_BYTES)


def _object(line: bytes) -> dict[str, Any]:
    value = syntax.json_value(line, finite=True)
    if not isinstance(value, dict):
        raise TypeError(f"a line is not a JSON object: {excerpt(value)}")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LATEST_S:
        raise ValueError(f"at_s is not a time: {excerpt(value)}")
    return float(value)


def _piece(line: Mapping[str, Any]) -> bytes:
    text = line.get("text", line.get("base64"))
    if not isinstance(text, str):
        raise TypeError(f"a piece is not text: {excerpt(text)}")
    return text.encode("utf-8") if "text" in line else base64.b64decode(text, validate=True)


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of incident.json, which its `sha256` must equal."""
    body = {key: value for key, value in document.items() if key != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
