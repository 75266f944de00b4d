"""Contracts of a server that is no vLLM: recorded, kept, broken, and no file is trusted blindly."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import conversation
from pytest_vllm_gates.session import collection as session_collection

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Fakes, Project

SHIPPED_GATE = session_collection.GATES / "test_contracts.py"
ASKED = tuple(conversation.SHIPPED.glob("t*-*.toml"))
FOLDER = "golden/qwen3.5/main/miniature"
CHECKS = {
    "routes": "contracts::test_routes_are_served[]",
    "metrics": "contracts::test_metrics_keep_their_names[]",
    "fields": "contracts::test_answers_keep_their_fields[]",
    "errors": "contracts::test_errors_keep_their_shape[]",
    "effects": "contracts::test_sampling_parameters_have_their_effect[]",
}


@pytest.fixture
def contracts(project: Project) -> Project:
    """A project whose gates are contracts alone, with the conversations that they ask."""
    shutil.copy(SHIPPED_GATE, session_collection.GATES)
    for path in ASKED:
        shutil.copy(path, conversation.SHIPPED)
    return project


def gates(project: Project, url: str, *arguments: str) -> pytest.RunResult:
    more = ["--checkpoint", "miniature", "--gates-report", "out", "-m", "contracts", *arguments]
    return project.pytest("--model", "qwen3.5", "--base-url", url, *more)


def outcomes(project: Project) -> dict[str, str]:
    found = project.outcomes()
    return {name: found[check] for name, check in CHECKS.items()}


def golden(project: Project, name: str) -> Path:
    return project.path / FOLDER / f"contracts-{name}.txt"


def test_what_nobody_recorded_is_missing_and_what_is_not_there_is_not_judged(
    contracts: Project, fakes: Fakes
) -> None:
    result = gates(contracts, fakes().base_url)
    assert result.ret == 1
    assert outcomes(contracts) == {
        "routes": "MISSING", "metrics": "N/A", "fields": "MISSING", "errors": "MISSING",
        "effects": "N/A",
    }  # fmt: skip
    said = result.stdout.str()
    assert "record it: pytest --model qwen3.5 -m contracts --update-golden" in said


def test_what_was_recorded_is_kept_and_what_is_deleted_is_not_pinned(
    contracts: Project, fakes: Fakes
) -> None:
    url = fakes().base_url
    assert gates(contracts, url, "--update-golden").ret == 0
    assert not golden(contracts, "metrics").exists()
    assert "/v1/models: GET\n" in golden(contracts, "routes").read_text()
    assert "\nchat: usage.total_tokens: integer\n" in golden(contracts, "fields").read_text()
    assert gates(contracts, url).ret == 0
    assert outcomes(contracts) == {
        "routes": "PASS", "metrics": "N/A", "fields": "PASS", "errors": "PASS", "effects": "N/A",
    }  # fmt: skip

    kept = golden(contracts, "fields")
    text = kept.read_text()
    kept.write_text(text.replace("usage.total_tokens", "usage.billed_tokens"))
    result = gates(contracts, url)
    assert result.ret == 1
    assert outcomes(contracts)["fields"] == "FAIL"
    said = result.stdout.str()
    assert "chat: usage.billed_tokens is gone: clients that read it find nothing" in said
    assert "delete its line from the golden 'contracts-fields'" in said

    kept.write_text("".join(line for line in text.splitlines(True) if "total_tokens" not in line))
    assert gates(contracts, url).ret == 0
    (found,) = [
        test["evidence"]
        for gate in contracts.verdict()["families"][0]["gates"]
        for test in gate["tests"]
        if "fields" in test["test"]
    ]
    new = {"where": "fields", "name": "chat: usage.total_tokens", "ours": "integer", "theirs": None}
    assert new in found["drift"]
    assert "chat: usage.total_tokens: integer" in found["contracts"]["fields"]


def test_a_server_without_a_key_is_not_asked_with_another(
    contracts: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert gates(contracts, fakes(key="k").base_url, "--update-golden").ret == 0
    assert "wrong key: HTTP status: 401\n" in golden(contracts, "errors").read_text()
    monkeypatch.delenv("OPENAI_API_KEY")
    assert gates(contracts, fakes().base_url).ret == 0
    assert outcomes(contracts)["errors"] == "PASS"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: text[:-20], "it was cut short"),
        (lambda text: text.replace("/v1/models: GET", "/v1/models"), "is no contract"),
    ],
    ids=["cut short", "no contract"],
)
def test_a_corrupt_golden_fails(contracts: Project, fakes: Fakes, spoil: object, says: str) -> None:
    url = fakes().base_url
    gates(contracts, url, "--update-golden")
    path = golden(contracts, "routes")
    path.write_text(spoil(path.read_text()))  # type: ignore[operator]
    result = gates(contracts, url)
    assert result.ret == 1
    assert outcomes(contracts)["routes"] == "FAIL"
    assert says in result.stdout.str()


def test_metrics_that_were_pinned_and_are_gone_fail(contracts: Project, fakes: Fakes) -> None:
    contracts.write(
        f"{FOLDER}/contracts-metrics.txt",
        "golden 1: contracts, metrics: ours\n\nvllm:hits_total: counter\n\nend of golden\n",
    )
    result = gates(contracts, fakes().base_url)
    assert outcomes(contracts)["metrics"] == "FAIL"
    assert "the server tells no metrics at all: every dashboard is empty" in result.stdout.str()
