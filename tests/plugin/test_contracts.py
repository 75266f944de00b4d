"""The contracts of a server that is not vLLM are recorded, kept and broken."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import conversation
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Fakes, Project

SHIPPED_GATE = verdict_gates.GATES / "test_contracts.py"
ASKED = tuple(conversation.SHIPPED.glob("t*-*.toml"))
FOLDER = "golden/qwen3.5/main/miniature"
CHECKS = {
    "routes": "contracts::test_routes_are_served[]",
    "metrics": "contracts::test_metrics_keep_their_names[]",
    "fields": "contracts::test_answers_keep_their_fields[]",
    "errors": "contracts::test_errors_keep_their_shape[]",
}


@pytest.fixture
def contracts(project: Project) -> Project:
    """A project whose only gates are contracts, with the conversations that they send."""
    shutil.copy(SHIPPED_GATE, verdict_gates.GATES)
    for path in ASKED:
        shutil.copy(path, conversation.SHIPPED)
    return project


def gates(project: Project, url: str, *arguments: str) -> pytest.RunResult:
    more = ["--checkpoint", "miniature", "--gates-report", "out", "-m", "contracts", *arguments]
    return project.pytest("--model", "qwen3.5", "--base-url", url, *more)


def outcomes(project: Project) -> dict[str, str]:
    by_test = project.outcomes()
    return {name: by_test[check] for name, check in CHECKS.items()}


def golden(project: Project, name: str) -> Path:
    return project.path / FOLDER / f"contracts-{name}.txt"


def test_unrecorded_contract_is_missing(contracts: Project, fakes: Fakes) -> None:
    url = fakes().base_url
    result = gates(contracts, url)
    assert result.ret == 1
    assert outcomes(contracts) == {
        "routes": "MISSING", "metrics": "N/A", "fields": "MISSING", "errors": "MISSING",

    }  # fmt: skip
    output = result.stdout.str()
    asked = f"--base-url {url} --checkpoint miniature -m contracts --update-golden"
    assert f"record it: pytest --model qwen3.5 {asked}" in output


def test_recorded_fields_are_required_and_deleted_ones_are_not(
    contracts: Project, fakes: Fakes
) -> None:
    url = fakes().base_url
    assert gates(contracts, url, "--update-golden").ret == 0
    assert not golden(contracts, "metrics").exists()
    assert "/v1/models: GET\n" in golden(contracts, "routes").read_text()
    assert "\nchat: usage.total_tokens: integer\n" in golden(contracts, "fields").read_text()
    assert gates(contracts, url).ret == 0
    assert outcomes(contracts) == {
        "routes": "PASS", "metrics": "N/A", "fields": "PASS", "errors": "PASS",
    }  # fmt: skip

    path = golden(contracts, "fields")
    text = path.read_text()
    path.write_text(text.replace("usage.total_tokens", "usage.billed_tokens"))
    result = gates(contracts, url)
    assert result.ret == 1
    assert outcomes(contracts)["fields"] == "FAIL"
    output = result.stdout.str()
    assert "chat: usage.billed_tokens is gone: clients that read it find nothing" in output
    assert "delete its line from the golden 'contracts-fields'" in output

    path.write_text("".join(line for line in text.splitlines(True) if "total_tokens" not in line))
    assert gates(contracts, url).ret == 0
    (evidence,) = [
        test["evidence"]
        for gate in contracts.verdict()["families"][0]["gates"]
        for test in gate["tests"]
        if "fields" in test["test"]
    ]
    new = {"where": "fields", "name": "chat: usage.total_tokens", "ours": "integer", "theirs": None}
    assert new in evidence["drift"]
    assert "chat: usage.total_tokens: integer" in evidence["contracts"]["fields"]


def test_server_without_a_key_gets_no_wrong_key(
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
        (lambda text: text.replace("/v1/models: GET", "/v1/models"), "is not a contract"),
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


def test_recorded_metric_that_is_gone_fails(contracts: Project, fakes: Fakes) -> None:
    contracts.write(
        f"{FOLDER}/contracts-metrics.txt",
        "golden 1: contracts, metrics: ours\n\nvllm:hits_total: counter\n\nend of golden\n",
    )
    result = gates(contracts, fakes().base_url)
    assert outcomes(contracts)["metrics"] == "FAIL"
    assert "the server exposes no metrics at all: every dashboard is empty" in result.stdout.str()
