"""Reads requests from a file: a command, a log, a HAR or batch file, an incident or a body."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import checks, expectation, read as incidents_read, types
from pytest_vllm_gates.incidents.importers import (
    BODY_BYTES,
    TEXT_BYTES,
    curl,
    har,
    object_of,
    openai_batch,
    openai_log,
    path_of,
    request,
    vllm_log,
)

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_vllm_gates.client.exchange import Sent

KINDS: dict[str, ModuleType] = {
    "curl": curl, "openai-log": openai_log, "har": har, "vllm-log": vllm_log,
    "openai-batch": openai_batch,
}  # fmt: skip
OF_JSON = ("har", "openai-batch")
"""The kinds whose text begins like a JSON object."""
MOST_REQUESTS = 2000
REQUESTS = "requests"


@dataclass(frozen=True)
class Imported:
    """The requests of a file."""

    kind: str
    sends: list[Sent]
    text: str = ""
    """The file's text, which may contain secrets."""
    expectations: tuple[str, ...] = ()
    """The expectations of an incident."""
    family: str | None = None
    notes: list[str] = field(default_factory=list)


def of_text(name: str, kind: str | None, number: int | None) -> Imported:
    """Read the requests of a command, a log or a HAR file; `-` is the standard input.

    Raises `UserError` if there is none, or too many.
    """
    data, folder = _data(name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not text in UTF-8: {error}") from error
    kind = kind or _kind(text)
    return _imported(name, text, folder, kind, number)


def of_anything(name: str, kind: str | None, number: int | None, path: str | None) -> Imported:
    """Read the requests of a file that may also be an incident, or a body that goes to `path`."""
    if name != "-" and (found := _of_incident(Path(name))):
        return found
    data, folder = _data(name)
    text = data.decode("utf-8-sig", "replace")
    # A body may quote any log or command: a JSON object is a body, or a HAR or batch file.
    kinds = [each for each, module in KINDS.items() if module.claims(text)]
    if text.lstrip().startswith("{"):
        kinds = [each for each in kinds if each in OF_JSON]
    if kind or kinds:
        found = _imported(name, text, folder, kind or _kind(text), number)
        _refuse_routes(name, found.sends)
        return found
    if len(data) > BODY_BYTES:
        raise UserError(f"{name} has more than {BODY_BYTES} bytes")
    return Imported("body", [request(path or path_of(object_of(data)), data, headers={})])


def _of_incident(path: Path) -> Imported | None:
    """Return the requests of an incident, or the one whose body is at `path`; else None."""
    in_requests = path.parent.name == REQUESTS and (path.parent.parent / types.NAME).is_file()
    if not (path.is_dir() or path.name == types.NAME or in_requests):
        return None
    incident_folder = incidents_read.read(path.parent.parent if in_requests else path)
    incident = incident_folder.incident
    chosen = f"{REQUESTS}/{path.name}" if in_requests else None
    sends = [
        incident_folder.sent(send) for send in incident.sends if not chosen or send.body == chosen
    ]
    if not sends:
        raise UserError(f"the incident {incident_folder.folder} has no request")
    _refuse_routes(str(incident_folder.folder), sends)
    expected = expectation.of(incident_folder)
    return Imported("incident", sends, "", tuple(each.said for each in expected), incident.family)


def _refuse_routes(name: str, sends: list[Sent]) -> None:
    """Refuse imported requests that are not inference: they are sent with the user's key."""
    if refused := list(checks.route_faults(sends, types.load().routes)):
        raise UserError(
            f"{name} is refused: it would send {refused[0]}, which is not inference, with your key"
        )


def _imported(name: str, text: str, folder: Path, kind: str, number: int | None) -> Imported:
    notes: list[str] = []
    if kind == "curl":
        sends, notes = curl.read(text, folder)
    else:
        sends = KINDS[kind].requests(text, folder)
    if not sends:
        raise UserError(f"{name}: it contains no request to a model in the form of {kind}")
    if len(sends) > MOST_REQUESTS and number is None:
        raise UserError(f"{name} has {len(sends)} requests: choose one with --number")
    if number is not None:
        if not 1 <= number <= len(sends):
            raise UserError(f"--number {number}: {name} has {len(sends)} requests")
        sends = [sends[number - 1]]
    if any("?" in sent.path for sent in sends):
        notes.append(
            "the URL's query was left out: it may contain a key, and secrets are not sent again"
        )
        sends = [replace(sent, path=sent.path.partition("?")[0]) for sent in sends]
    return Imported(kind, sends, text, notes=notes)


def _data(name: str) -> tuple[bytes, Path]:
    """Return the bytes of a file, and the folder whose files its command may name."""
    try:
        if name == "-":
            data, folder = sys.stdin.buffer.read(TEXT_BYTES + 1), Path.cwd()
        else:
            path = Path(name)
            data, folder = bounded_read.data(path, TEXT_BYTES), path.absolute().parent
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from error
    if len(data) > TEXT_BYTES:
        raise UserError(f"{name} has more than {TEXT_BYTES} bytes: keep only the relevant part")
    return data, folder


def _kind(text: str) -> str:
    kinds = [name for name, module in KINDS.items() if module.claims(text)]
    if len(kinds) > 1 and not curl.BEGIN.match(text.lstrip()):
        kinds = [name for name in kinds if name != "curl"]  # a log in which a command is quoted
    if len(kinds) != 1:
        reason = f"may be {' or '.join(kinds)}" if kinds else "is not a known kind"
        raise UserError(
            f"the kind of this text is not clear: it {reason}; name it: --kind {'|'.join(KINDS)}"
        )
    return kinds[0]
