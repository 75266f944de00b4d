"""The evidence of a replayed trace."""

from __future__ import annotations

from pytest_vllm_gates.load.trace import Replay


def test_evidence_has_every_field_of_a_replay() -> None:
    replay = Replay("a.jsonl", "mooncake", requests=9, left_out=1, cut=2, speed=None)
    assert replay.as_evidence() == {
        "file": "a.jsonl", "format": "mooncake", "requests": 9, "left_out": 1, "cut": 2,
        "speed": None,
    }  # fmt: skip
