"""A server that already runs is judged and otherwise left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from e2e import gates

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.served import Served

pytestmark = pytest.mark.real


@pytest.mark.slow
def test_a_running_server_is_judged_and_left_running(shared: Served, tmp_path: Path) -> None:
    endpoint = shared.endpoint
    key = {"OPENAI_API_KEY": endpoint.api_key or ""}
    ran = gates.run(tmp_path, "--base-url", endpoint.base_url, env=key)
    assert gates.only_a_baseline_is_missing(ran), ran.output
    assert ran.verdict["lane"]["form"] == "base_url"
    assert not list(tmp_path.rglob("*.log")), "something was booted"
    assert shared.alive()


def test_the_key_may_have_a_separate_variable(shared: Served, tmp_path: Path) -> None:
    endpoint = shared.endpoint
    ran = gates.run(
        tmp_path,
        "--base-url", endpoint.base_url, "--api-key-env", "OUR_KEY", "-m", "boot",
        env={"OUR_KEY": endpoint.api_key or ""},
    )  # fmt: skip
    assert ran.outcomes()["boot"] == "PASS", ran.output
    assert ran.status == 0


def test_wrong_key_is_reported_with_a_fix(shared: Served, tmp_path: Path) -> None:
    wrong = {"OPENAI_API_KEY": "wrong"}
    ran = gates.run(tmp_path, "--base-url", shared.endpoint.base_url, env=wrong)
    assert ran.status == 1
    assert ran.verdict["promotion"] == "HOLD"
    tests = [test for gate in ran.verdict["families"][0]["gates"] for test in gate["tests"]]
    outcomes = {(test["outcome"], test.get("cause")) for test in tests}
    assert ("BLOCKED", "infrastructure") in outcomes
    assert {outcome for outcome, _ in outcomes} <= {"BLOCKED", "N/A"}
    assert "the server refused the API key (401 on /v1/models)" in ran.output
    assert "export OPENAI_API_KEY, or name its variable with --api-key-env" in ran.output
    assert shared.alive()
