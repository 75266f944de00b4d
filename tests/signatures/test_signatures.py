"""Every known failure is diagnosed from a whole log, and no healthy log gets a diagnosis.

`logs/` has logs in the words of vLLM and its environment, composed from texts in their sources
and in public reports: several versions, ranks and log collectors. `expected.toml` has the expected
diagnosis of each. `healthy/` has logs of healthy servers: real ones of the CPU lanes, made
anonymous, and composed ones of GPUs, with lines that mention failures. `lines.toml` has single
lines of both kinds.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.diagnosis.signature import Signature, placeholders

if TYPE_CHECKING:
    from pytest_vllm_gates.server.failure import Diagnosis, Explanation

HERE = Path(__file__).parent
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((HERE / "expected.toml").read_text())
LINES = tomllib.loads((HERE / "lines.toml").read_text())
NAMED = [(wanted, line) for wanted, lines in LINES["named"].items() for line in lines]
HEALTHY = sorted((HERE / "healthy").glob("*.log"))
CLASSES = signature.load_all()
SIGNATURES = {entry.id: entry for each in CLASSES for entry in each.signatures}
MAX_CORPUS_BYTES = 2_000_000


@cache
def explain_log(text: bytes, exit_status: int | None = None) -> Explanation:
    return explain.explain([text], CLASSES, exit_status)


def answer(explanation: Explanation, signature_id: str) -> Diagnosis:
    """Return the answer; for a server that keeps running, its first warning."""
    if SIGNATURES[signature_id].kind == "warning":
        assert explanation.id is None, "\n".join(explanation.lines())
        assert explanation.warnings
        return explanation.warnings[0]
    assert explanation.answer, "\n".join(explanation.lines())
    return explanation.answer


@pytest.mark.parametrize("name", EXPECTED)
def test_log_is_diagnosed_with_its_numbers(name: str) -> None:
    expected = EXPECTED[name]
    log = (HERE / "logs" / f"{name}.log").read_bytes()
    explanation = explain_log(log, expected.get("exit_status"))
    diagnosis = answer(explanation, expected["id"])
    assert diagnosis.id == expected["id"], "\n".join(explanation.lines())
    text = "\n".join((diagnosis.cause, *diagnosis.fixes))
    assert [sentence for sentence in expected["says"] if sentence not in text] == [], text
    assert diagnosis.cause
    assert diagnosis.fixes
    assert not placeholders(text), text


@pytest.mark.parametrize("log", HEALTHY, ids=lambda path: path.stem)
def test_healthy_log_has_no_diagnosis(log: Path) -> None:
    explanation = explain_log(log.read_bytes())
    assert explanation.id is None, "\n".join(explanation.lines())
    assert explanation.candidates == explanation.warnings == explanation.wrappers == ()


@pytest.mark.parametrize(("signature_id", "line"), NAMED, ids=lambda text: text[:40])
def test_single_line_is_diagnosed(signature_id: str, line: str) -> None:
    explanation = explain_log(f"{line}\n".encode())
    assert explanation.id == signature_id, "\n".join(explanation.lines())


@pytest.mark.parametrize("line", LINES["innocent"], ids=lambda text: text[:40])
def test_innocent_line_has_no_diagnosis(line: str) -> None:
    explanation = explain_log(
        f"INFO 11-20 10:00:00 [api_server.py:1] version 0.32.0\n{line}\n".encode()
    )
    assert explanation.id is None, "\n".join(explanation.lines())
    assert explanation.warnings == ()


def test_every_signature_has_a_log_and_every_log_is_expected() -> None:
    assert {expectation["id"] for expectation in EXPECTED.values()} == set(SIGNATURES)
    assert {path.stem for path in (HERE / "logs").glob("*.log")} == set(EXPECTED)
    assert [
        name
        for name, expectation in EXPECTED.items()
        if name.rsplit("-", 1)[0] != expectation["id"]
    ] == []


def test_the_corpus_stays_small_and_anonymous() -> None:
    files = [*(HERE / "logs").rglob("*.log"), *HEALTHY]
    assert sum(path.stat().st_size for path in files) < MAX_CORPUS_BYTES
    private = re.compile(rb"/work/|gatescache|/tmp/wt-|hf_[A-Za-z0-9]{20}|sk-[A-Za-z0-9]{16}")
    assert [path.name for path in files if private.search(path.read_bytes())] == []


@pytest.mark.parametrize("known_failure", SIGNATURES.values(), ids=lambda each: each.id)
def test_signature_has_a_cause_and_a_fix(known_failure: Signature) -> None:
    assert not known_failure.title.endswith(".")
    assert known_failure.text.cause.endswith((".", "}"))
    for sentence in (
        known_failure.text.cause,
        known_failure.text.cause_plain,
        *known_failure.text.fixes,
        *(shown.fix for shown in known_failure.text.shown),
    ):
        assert "  " not in sentence
        assert sentence.count("`") % 2 == 0, sentence
