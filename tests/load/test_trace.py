"""What was made of a trace is evidence."""

from __future__ import annotations

from pytest_vllm_gates.load.trace import Replay


def test_all_of_a_replay_is_evidence() -> None:
    replay = Replay("a.jsonl", "mooncake", requests=9, left_out=1, cut=2, speed=None)
    assert replay.as_evidence() == {
        "file": "a.jsonl", "format": "mooncake", "requests": 9, "left_out": 1, "cut": 2,
        "speed": None,
    }  # fmt: skip
