"""Writes incidents: whole or not at all, within their size limits, and without secrets.

`cleaned` also redacts prompts if they must not be stored.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import os
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import folder_aside, write_whole, writing
from pytest_vllm_gates.incidents.read import FILES_BYTES, allow, digest
from pytest_vllm_gates.incidents.types import (
    EXCERPT,
    EXPECTED,
    LOG,
    NAME,
    PROMPT_FILES,
    File,
    Incident,
    Send,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.redaction.redactor import Redactor

RESPONSE_BYTES = 4 * 2**20
"""The most bytes of a response's body that are stored."""
NAME_CHARACTERS = 100
COPIES = 1000
FOLDER_NAME = "{name}"
"""The placeholder for the folder's name in the command of an incident to be written."""
UNSAFE = re.compile(r"[^a-z0-9.]+")


def write(
    parent: Path,
    name: str,
    incident: Incident,
    sends: Sequence[Sent],
    files: Mapping[str, bytes],
) -> Path:
    """Write an incident into `parent` under `name`, whole or not at all; return its folder.

    `sends` and `files` become the incident's; if they exceed the size limit, `cut` lists what was
    left out. `{name}` in the incident's command becomes the name of the folder. Raises
    `WriteError`.
    """
    with writing(parent / name), folder_aside(parent) as aside:
        listed, written_sends, cut = _laid_out(aside, sends, files)
        folder = parent / name
        for number in range(2, COPIES):
            document = incident.model_copy(
                update={
                    "sends": tuple(written_sends),
                    "cut": (*incident.cut, *cut),
                    "files": listed,
                    "command": incident.command.replace(FOLDER_NAME, shlex.quote(folder.name)),
                }
            ).model_dump(mode="json")
            # Half a surrogate pair, which broken answers may have, is not UTF-8.
            text = json.dumps(document, ensure_ascii=False)
            document = json.loads(text.encode("utf-8", "replace"))
            signed = {**document, "sha256": digest(document)}
            text = json.dumps(signed, indent=1, ensure_ascii=False) + "\n"
            write_whole(aside / NAME, text)
            with contextlib.suppress(OSError):  # some file systems have no modes
                aside.chmod(0o755)
            try:
                aside.rename(folder)
            except OSError:
                if not os.path.lexists(folder):
                    raise
                folder = parent / f"{name}-{number}"
            else:
                return folder
        raise UserError(f"{parent}: a thousand incidents have the name {name}: remove some")


def place(parent: Path, root: Path) -> str:
    """Return the path, for a shell command, of an incident that will be written in `parent`.

    The command runs in the project's `root`, or in `parent` if that is outside: incidents are
    passed on, and the paths of one machine do not exist on another.
    """
    if parent == root or not parent.is_relative_to(root):
        return FOLDER_NAME
    return shlex.quote(f"{parent.relative_to(root)}/") + FOLDER_NAME


def name_of(created: str, family: str, gate: str, test: str) -> str:
    """Return the name of an incident's folder: the day, the family, the gate and the test."""
    words = test.removeprefix("test_").replace(f"[{family}", "[")
    parts = [created[:10], family, gate, words]
    slugs = [UNSAFE.sub("-", part.lower()).strip("-.") for part in parts]
    return "-".join(slug for slug in slugs if slug)[:NAME_CHARACTERS].strip("-.")


def _laid_out(
    folder: Path, sends: Sequence[Sent], files: Mapping[str, bytes]
) -> tuple[dict[str, File], list[Send], list[str]]:
    """Write the files of an incident; return them, its sends, and notes on what did not fit."""
    listed: dict[str, File] = {}
    cut: list[str] = []
    room = FILES_BYTES

    def put(name: str, data: bytes) -> str | None:
        nonlocal room
        if len(data) > room:
            cut.append(f"{name}: left out: its {len(data)} bytes exceed the size limit")
            return None
        room -= len(data)
        write_whole(folder / name, data)
        listed[name] = File(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
        return name

    written_sends = []
    for number, sent in enumerate(sends, 1):
        response = None
        if sent.status is not None:
            data, lost = _response(sent)
            response = put(f"responses/{number}.jsonl", data)
            if lost:
                cut.append(f"responses/{number}.jsonl: the last {lost} bytes were not kept")
        written_sends.append(
            Send(
                name=sent.name or str(number),
                method=sent.method,
                path=sent.path,
                headers=dict(sent.headers),
                body=put(f"requests/{number}.json", sent.body) if sent.body else None,
                response=response,
                status=sent.status,
                error=sent.error,
            )
        )
    for name, data in files.items():
        allow(folder, name)
        put(name, data)
    return listed, written_sends, cut


def _response(sent: Sent) -> tuple[bytes, int]:
    """Return the lines of a response's file, and how many bytes of its body they lack."""
    lines: list[dict[str, Any]] = []
    room, lost = RESPONSE_BYTES, sent.cut_bytes
    for at_s, piece in sent.pieces:
        part = piece[:room]
        room -= len(part)
        lost += len(piece) - len(part)
        if part:
            lines.append({"at_s": round(at_s, 6), **_shown(part)})
    head = {"status": sent.status, "headers": dict(sent.response_headers)}
    lines.insert(0, {**head, "cut_bytes": lost} if lost else head)
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines), lost


def _shown(piece: bytes) -> dict[str, str]:
    try:
        return {"text": piece.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(piece).decode("ascii")}


OTHERWISE = (
    "prompts and answers are not as they were sent (--redact-prompts): this shows what happened "
    "and cannot show it again"
)


def cleaned(
    incident: Incident, sends: Sequence[Sent], files: Mapping[str, bytes], redactor: Redactor
) -> tuple[Incident, list[Sent], dict[str, bytes]]:
    """Return the redacted parts of an incident; a request without secrets keeps every byte."""
    dumped = incident.model_dump(mode="json")
    document = redactor.json(dumped)
    document["conversation"] = redactor.prompt(dumped["conversation"])
    if not redactor.prompts.kept:
        document["says"] = redactor.failure(document["says"])
        for name in ("findings", "signature"):
            document[name] = redactor.failure(document[name])
        document["conversation"] = redactor.evidence(document["conversation"])
        document["cut"] = [*document["cut"], OTHERWISE]
    stay = {name: data for name, data in files.items() if _stays(name, redactor)}
    return (
        Incident.model_validate_json(json.dumps(document)),
        [_sent(send, redactor) for send in sends],
        {name: _file(name, data, redactor) for name, data in stay.items()},
    )


def _sent(sent: Sent, redactor: Redactor) -> Sent:
    pieces = redactor.response([piece for _, piece in sent.pieces])
    return replace(
        sent,
        path=redactor.text(sent.path),
        headers=redactor.headers(sent.headers),
        body=redactor.body(sent.body),
        response_headers=redactor.headers(sent.response_headers),
        pieces=tuple((at_s, piece) for (at_s, _), piece in zip(sent.pieces, pieces, strict=True)),
        error=redactor.failure(sent.error),
    )


def _stays(name: str, redactor: Redactor) -> bool:
    """Return whether a file may be in the incident: a golden contains a rendered prompt."""
    return redactor.prompts.kept or not name.startswith(f"{EXPECTED}/")


def _file(name: str, data: bytes, redactor: Redactor) -> bytes:
    if name.startswith(f"{PROMPT_FILES}/"):
        return data  # a tokenizer's words are not private
    if name == LOG:
        log = bounded_read.gunzipped(name, data)
        clean = redactor.prompts.log(redactor.data(log))
        return data if clean == log else gzip.compress(clean, mtime=0)
    if name == EXCERPT:
        return redactor.prompts.prose(redactor.text(data.decode("utf-8", "replace"))).encode()
    return redactor.prompt(data) if name.startswith(f"{EXPECTED}/") else redactor.data(data)
