"""Misleading logs get the right answer: warnings, loops, logs that are cut short, quotations.

`logs/kinds/` has the logs, composed from lines of vLLM's sources and of public reports, and
`kinds.toml` has the expected answer to each.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.server import log

HERE = Path(__file__).parent
KINDS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "kinds.toml").read_text(encoding="utf-8"))
SURE = ("possible", "likely", "certain")


@pytest.mark.parametrize("name", KINDS)
def test_misleading_log_gets_the_right_answer(name: str) -> None:
    expected = KINDS[name]
    path = HERE / "logs" / "kinds" / f"{name}.log"
    parts = explain.explain_parts(log.blocks(path), signature.load_all())
    explanation = next((each for each in parts.values() if each.id), next(iter(parts.values())))
    text = "\n".join((*parts, *explanation.lines()))
    assert (explanation.id or "", explanation.outcome) == (expected["id"], expected["outcome"]), (
        text
    )
    if explanation.answer and "at_most" in expected:
        sure = SURE.index(explanation.answer.confidence)
        assert sure <= SURE.index(expected["at_most"]), text
    assert [words for words in expected.get("says", ()) if words not in text] == [], text
    assert [words for words in expected.get("not_says", ()) if words in text] == [], text


def test_every_log_of_a_kind_is_expected() -> None:
    assert {path.stem for path in (HERE / "logs" / "kinds").iterdir()} == set(KINDS)
