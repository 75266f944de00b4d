"""Real servers started wrongly: other families' parsers, a wrong template, wrong stop tokens.

Each boots and answers fluently; the conversation gates find the fault.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from e2e import gates, own_lane
from e2e.served import subject_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.slow]

SHORT = ("--answer-tokens", "300", "--samples", "0", "-m")
SWITCH = "enable_thinking"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A copy of the miniature, to be spoilt."""
    _, miniature = subject_of(gates.MODEL)
    return shutil.copytree(miniature.source, tmp_path / "weights" / "own")


def failed(gates_run: gates.GatesRun) -> set[str]:
    """Return the gates that failed."""
    assert gates_run.verdict["promotion"] == "REJECT", gates_run.output
    assert gates_run.status == 1
    return {gate for gate, outcome in gates_run.outcomes().items() if outcome == "FAIL"}


def test_parsers_of_other_families_fail(tmp_path: Path) -> None:
    parsers = {"reasoning_parser": "deepseek_v3", "tool_call_parser": "hermes"}
    own_lane.write(tmp_path, "others", serve=parsers)
    gates_run = gates.run(tmp_path, "--lane", "others", *SHORT, "boot or reasoning or tools")
    assert failed(gates_run) >= {"reasoning", "tools"}
    words = gates_run.reasons("reasoning")
    assert "content contains the marker '</think>'" in words
    assert "thinking is on, and reasoning is empty" in words
    words = gates_run.reasons("tools")
    assert "and the tokens contain 1: '<tool_call>" in words


def test_template_without_a_thinking_switch(tmp_path: Path, weights: Path) -> None:
    """The parser has one (vllm#54744); the tag between thinking and answer is not text."""
    template = weights / "chat_template.jinja"
    text = template.read_text(encoding="utf-8")
    assert SWITCH in text
    template.write_text(text.replace(SWITCH, "nobody_sets_this"), encoding="utf-8")
    gates_run = gates.run(tmp_path, "--checkpoint", str(weights), *SHORT, "boot or reasoning")
    assert "reasoning" in failed(gates_run)
    words = gates_run.reasons("reasoning")
    assert "A text of the model is missing, or in the wrong field" in words
    assert "reasoning is '', and the tokens contain 'They ask for the capital of France" in words


def test_stop_token_inside_the_thinking(tmp_path: Path, weights: Path) -> None:
    tokens = json.loads((weights / "tokenizer.json").read_text())["added_tokens"]
    ids = {token["content"]: token["id"] for token in tokens}
    generation = weights / "generation_config.json"
    config = json.loads(generation.read_text())
    config["eos_token_id"].append(ids["</think>"])
    generation.write_text(json.dumps(config))
    gates_run = gates.run(tmp_path, "--checkpoint", str(weights), *SHORT, "boot or reasoning")
    assert "reasoning" in failed(gates_run)
    words = gates_run.reasons("reasoning")
    assert "The server reports the end, and the answer is empty" in words
