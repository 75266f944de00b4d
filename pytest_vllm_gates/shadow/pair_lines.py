"""Pairs and judgements as lines of JSON, between the proxy and the process that judges."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.shadow.tally import PairJudgement, SideJudgement

BYTES = "latin-1"
"""Maps every byte to a character."""


def pair_line(stable: Sent, canary: Sent) -> bytes:
    """Return a pair as a line."""
    return json.dumps([_side(stable), _side(canary)]).encode() + b"\n"


def pair_of(line: bytes) -> tuple[Sent, Sent]:
    """Return the pair of a line."""
    stable, canary = json.loads(line)
    return _sent(stable), _sent(canary)


def judgement_line(judged: PairJudgement) -> bytes:
    """Return a judgement as a line."""
    return json.dumps(asdict(judged)).encode() + b"\n"


def judgement_of(line: bytes) -> PairJudgement:
    """Return the judgement of a line."""
    fields = json.loads(line)
    stable, canary = (SideJudgement(**fields.pop(name)) for name in ("stable", "canary"))
    parted = fields.pop("parted")
    return PairJudgement(stable, canary, parted=tuple(parted) if parted else None, **fields)


def _side(sent: Sent) -> dict[str, Any]:
    return {
        "method": sent.method,
        "path": sent.path,
        "headers": dict(sent.headers),
        "body": sent.body.decode(BYTES),
        "status": sent.status,
        "response_headers": dict(sent.response_headers),
        "pieces": [[at_s, piece.decode(BYTES)] for at_s, piece in sent.pieces],
        "error": sent.error,
        "cut_bytes": sent.cut_bytes,
    }


def _sent(fields: dict[str, Any]) -> Sent:
    pieces = tuple((at_s, piece.encode(BYTES)) for at_s, piece in fields.pop("pieces"))
    return Sent(**{**fields, "body": fields["body"].encode(BYTES), "pieces": pieces})
