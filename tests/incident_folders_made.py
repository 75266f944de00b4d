"""Incidents for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.incidents.types import (
    Incident,
    RecordedFinding,
    ServedCheckpoint,
    ServedLane,
)
from pytest_vllm_gates.incidents.write import write

if TYPE_CHECKING:
    from pathlib import Path

BODY = b'{"model": "alias", "messages": [{"role": "user", "content": "Hi"}], "stream": true}'
PIECES = ((0.01, b'data: {"a": "\xc3\xa9"}\n\n'), (0.5, b"\xff\xfe"), (0.75, b"data: [DONE]\n\n"))
SENT = Sent(
    method="POST",
    path="/v1/chat/completions",
    headers={"Content-Type": "application/json"},
    body=BODY,
    name="1",
    status=200,
    response_headers={"content-type": "text/event-stream"},
    pieces=PIECES,
)


def incident(**more: Any) -> Incident:
    """Return a plain incident."""
    fields: dict[str, Any] = {
        "created": "2026-11-20T10:00:00+00:00",
        "tool": {"name": "pytest-vllm-gates", "version": "1"},
        "family": "qwen3.5",
        "model": "alias",
        "checkpoint": ServedCheckpoint(name="miniature", source="/weights", revision=None),
        "lane": ServedLane(name="cpu", title="a lane", form="lock", env={}, serve={}, overlay=()),
        "gate": "reasoning",
        "test": "test_no_marker_reaches_a_field[qwen3.5]",
        "says": "content holds a marker",
        "findings": (RecordedFinding(case="plain", says="content holds a marker"),),
        "command": "pytest --repro {name}",
    }
    return Incident(**{**fields, **more})


def written(folder: Path, **more: Any) -> Path:
    """Write a plain incident and return its folder."""
    files = {"log-excerpt.txt": b"it broke\n"}
    return write(folder, "2026-11-20-leak", incident(**more), [SENT], files)
