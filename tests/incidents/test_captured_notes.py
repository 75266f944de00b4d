"""A note on the replay of a captured request explains what its answer cannot show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from incident_folders_made import incident

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.incidents import captured_notes, write as incidents_write
from pytest_vllm_gates.incidents.expectation import FILE
from pytest_vllm_gates.incidents.read import read

if TYPE_CHECKING:
    from pathlib import Path

SAMPLED = "this request is sampled: one try shows little; --times 20 shows more"
WORDS = (
    "the miniature's output differs from your model's: only status, frames and markers count; "
    "--base-url sends the requests to your server"
)


def request(path: str = "/v1/chat/completions", **body: Any) -> Sent:
    return Sent("POST", path, {}, json.dumps({"model": "m", "messages": [], **body}).encode(), "1")


def notes(
    folder: Path, sent: Sent, expected: str = "whole", gate: str = "captured", **more: Any
) -> list[str]:
    files = {FILE: f"{expected}\n".encode()}
    path = incidents_write.write(folder, "it", incident(gate=gate), [sent], files)
    given: dict[str, Any] = {"times": 1, "stands_in": False, **more}
    return list(
        captured_notes.notes(read(path), **given, times_option="--times", url_option="--base-url")
    )


@pytest.mark.parametrize(
    "body", [{}, {"temperature": 0.7}, {"temperature": 1, "seed": None}, {"top_k": 20}]
)
def test_one_try_of_a_sampled_request_shows_little(tmp_path: Path, body: dict[str, Any]) -> None:
    assert notes(tmp_path, request(**body)) == [SAMPLED]
    assert notes(tmp_path, request(**body), times=20) == []
    assert notes(tmp_path, request(**body), gate="reasoning") == []


@pytest.mark.parametrize("body", [{"temperature": 0}, {"seed": 0}, {"top_k": 1}])
def test_request_that_fixes_its_sampling_needs_no_note(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    assert notes(tmp_path, request(**body)) == []


def test_request_that_draws_no_tokens_needs_no_note(tmp_path: Path) -> None:
    assert notes(tmp_path, request("/v1/embeddings")) == []


def test_replaced_secrets_are_counted(tmp_path: Path) -> None:
    sent = request(seed=1, messages=[{"role": "user", "content": "[redacted] and [redacted]"}])
    assert notes(tmp_path, sent) == [
        "2 secrets were replaced in the prompt: the request is not the original"
    ]


@pytest.mark.parametrize("expected", ["calls get_time", "content has Paris", "sense"])
def test_miniature_in_place_of_the_weights_is_noted(tmp_path: Path, expected: str) -> None:
    assert notes(tmp_path, request(seed=1), expected, stands_in=True) == [WORDS]
    assert notes(tmp_path, request(seed=1), expected) == []


@pytest.mark.parametrize("expected", ["status is 200", "whole", "content lacks <think>"])
def test_expectation_that_any_weights_can_meet_needs_no_note(tmp_path: Path, expected: str) -> None:
    assert notes(tmp_path, request(seed=1), expected, stands_in=True) == []
