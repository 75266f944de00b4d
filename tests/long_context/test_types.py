"""A rung of the ladder has a name and a result."""

from __future__ import annotations

from dataclasses import replace

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.long_context.types import PromptReply, Rung, RungResult
from pytest_vllm_gates.server.watchdog import Hang, RestState

REST = RestState(Completion(content="Paris."), in_flight=0, kv_usage=0.25, memory_bytes=None)
CLIMBED = RungResult(
    Rung(1000, 10, 2),
    (PromptReply(seconds=1.25), PromptReply("gone", seconds=2.5), PromptReply("gone")),
    REST,
    waited=3,
)


def test_a_rungs_name_has_its_lengths_and_crowd() -> None:
    assert Rung(1000, 10).name == "1000 + 10 tokens, cold"
    assert Rung(1000, 10, 2, "warm").name == "1000 + 10 tokens x 2, warm"


def test_a_rung_is_survived_if_the_canary_answers() -> None:
    hang = Hang(silent_s=60, running=1, waiting=0, health="200", stacks=None)
    assert CLIMBED.survived
    assert not replace(CLIMBED, hang=hang).survived
    assert not replace(CLIMBED, rest=None).survived
    assert not replace(CLIMBED, rest=replace(REST, canary=Completion(error="gone"))).survived


def test_a_rungs_evidence_has_its_errors_and_rest() -> None:
    assert CLIMBED.as_evidence() == {
        "prompt_tokens": 1000, "output_tokens": 10, "at_once": 2, "prefix": "cold",
        "seconds": 2.5, "waited": 3, "preempted": 0, "errors": ["gone"],
        "kv_usage_after": 0.25, "in_flight_after": 0, "memory_bytes_after": None,
    }  # fmt: skip
    without = replace(CLIMBED, replies=(), rest=None).as_evidence()
    assert without["seconds"] == 0
    assert "kv_usage_after" not in without
