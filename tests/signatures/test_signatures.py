"""Every known failure is named from a whole log, and no healthy log has anything claimed of it.

`logs/` holds logs as vLLM and what runs it print them, composed from the texts in their sources and
in public reports: several versions, ranks and log collectors. `expected.toml` says what each is.
`healthy/` holds logs of servers that were well: real ones of the CPU lanes, made anonymous, and
composed ones of GPUs, with lines that speak of failures which are none. `lines.toml` has lines of
both kinds, each alone.
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
def told(text: bytes, exit_status: int | None = None) -> Explanation:
    return explain.explain([text], CLASSES, exit_status)


def answer(said: Explanation, wanted: str) -> Diagnosis:
    """Return the answer, which for a server that goes on is its first warning."""
    if SIGNATURES[wanted].kind == "warning":
        assert said.id is None, "\n".join(said.lines())
        assert said.warnings
        return said.warnings[0]
    assert said.answer, "\n".join(said.lines())
    return said.answer


@pytest.mark.parametrize("name", EXPECTED)
def test_a_log_is_named_and_its_numbers_are_told(name: str) -> None:
    expected = EXPECTED[name]
    log = (HERE / "logs" / f"{name}.log").read_bytes()
    explanation = told(log, expected.get("exit_status"))
    diagnosis = answer(explanation, expected["id"])
    assert diagnosis.id == expected["id"], "\n".join(explanation.lines())
    text = "\n".join((diagnosis.cause, *diagnosis.fixes))
    assert [entry for entry in expected["says"] if entry not in text] == [], text
    assert diagnosis.cause
    assert diagnosis.fixes
    assert not placeholders(text), text


@pytest.mark.parametrize("log", HEALTHY, ids=lambda path: path.stem)
def test_of_a_healthy_log_nothing_is_claimed(log: Path) -> None:
    explanation = told(log.read_bytes())
    assert explanation.id is None, "\n".join(explanation.lines())
    assert explanation.candidates == explanation.warnings == explanation.wrappers == ()


@pytest.mark.parametrize(("wanted", "line"), NAMED, ids=lambda entry: entry[:40])
def test_a_line_alone_is_named(wanted: str, line: str) -> None:
    explanation = told(f"{line}\n".encode())
    assert explanation.id == wanted, "\n".join(explanation.lines())


@pytest.mark.parametrize("line", LINES["innocent"], ids=lambda entry: entry[:40])
def test_a_line_that_only_sounds_like_a_failure_is_not_named(line: str) -> None:
    explanation = told(f"INFO 11-20 10:00:00 [api_server.py:1] version 0.32.0\n{line}\n".encode())
    assert explanation.id is None, "\n".join(explanation.lines())
    assert explanation.warnings == ()


def test_every_signature_has_a_log_and_every_log_is_expected() -> None:
    assert {entry["id"] for entry in EXPECTED.values()} == set(SIGNATURES)
    assert {path.stem for path in (HERE / "logs").iterdir()} == set(EXPECTED)
    assert [name for name, entry in EXPECTED.items() if name.rsplit("-", 1)[0] != entry["id"]] == []


def test_the_corpus_stays_small_and_anonymous() -> None:
    files = [*(HERE / "logs").iterdir(), *HEALTHY]
    assert sum(path.stat().st_size for path in files) < MAX_CORPUS_BYTES
    own = re.compile(rb"/work/|gatescache|/tmp/wt-|hf_[A-Za-z0-9]{20}|sk-[A-Za-z0-9]{16}")
    assert [path.name for path in files if own.search(path.read_bytes())] == []


@pytest.mark.parametrize("one", SIGNATURES.values(), ids=lambda entry: entry.id)
def test_a_signature_says_what_to_do(one: Signature) -> None:
    assert not one.title.endswith(".")
    assert one.text.cause.endswith((".", "}"))
    for said in (one.text.cause, one.text.cause_plain, *one.text.fixes):
        assert "  " not in said
        assert said.count("`") % 2 == 0, said
