"""An incident without secrets, and without prompts where they are not to be kept."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.incidents import types as facts
from pytest_vllm_gates.incidents.types import Incident, Sent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.redaction.redactor import Redactor

OTHERWISE = (
    "prompts and answers are not as they were sent (--redact-prompts): this shows what happened "
    "and cannot show it again"
)


def cleaned(
    incident: Incident, sends: Sequence[Sent], files: Mapping[str, bytes], redactor: Redactor
) -> tuple[Incident, list[Sent], dict[str, bytes]]:
    """Return what goes into a bundle; requests in which nothing is hidden keep every byte."""
    document = redactor.json(incident.model_dump(mode="json"))
    if not redactor.prompts.kept:
        document["says"] = redactor.failure(document["says"])
        for name in ("findings", "signature"):
            document[name] = redactor.failure(document[name])
        document["conversation"] = redactor.evidence(document["conversation"])
        document["cut"] = [*document["cut"], OTHERWISE]
    stay = {name: data for name, data in files.items() if _stays(name, redactor)}
    return (
        Incident.model_validate_json(json.dumps(document)),
        [_sent(one, redactor) for one in sends],
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
    """Return whether a file may be in the bundle: a golden is a prompt as it was rendered."""
    return redactor.prompts.kept or not name.startswith(f"{facts.EXPECTED}/")


def _file(name: str, data: bytes, redactor: Redactor) -> bytes:
    if name.startswith(f"{facts.PROMPT_FILES}/"):
        return data  # a tokenizer's words are none of anybody's
    if name == facts.LOG:
        log = gzip.decompress(data)
        clean = redactor.prompts.log(redactor.data(log))
        return data if clean == log else gzip.compress(clean, mtime=0)
    if name == facts.EXCERPT:
        return redactor.prompts.prose(redactor.text(data.decode("utf-8", "replace"))).encode()
    return redactor.data(data)
