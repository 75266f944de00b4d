"""A server that already runs is judged, and left as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Fakes, Project


def attached(project: Project, url: str, *arguments: str) -> pytest.RunResult:
    return project.pytest(
        "--model", "qwen3.5", "--base-url", url, "--gates-report", "out", *arguments
    )


def test_attached_server_is_judged_with_the_environments_key(
    project: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = fakes(key="the-secret-key")
    monkeypatch.setenv("OPENAI_API_KEY", "the-secret-key")
    result = attached(project, server.base_url, "-m", "boot or streaming")
    assert result.ret == 0
    outcomes = project.outcomes()
    assert outcomes.pop("boot::test_leaves_nothing_behind[]") == "N/A"
    assert set(outcomes.values()) == {"PASS"}
    assert "vllm gates: lane base-url (requested with --base-url)" in result.stdout.str()
    verdict = project.verdict()
    assert verdict["lane"]["form"] == "base_url"
    assert verdict["families"][0]["boot"]["evidence"]["served"]["id"] == "m"
    assert "the-secret-key" not in result.stdout.str() + str(verdict)
    chats = server.chats
    assert attached(project, server.base_url, "-k", "boots").ret == 0
    assert server.chats == chats + 1, "the server was not left running"


def test_variable_of_the_key_can_be_named(
    project: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_KEY", "k")
    result = attached(project, fakes(key="k").base_url, "--api-key-env", "HOUSE_KEY", "-k", "boots")
    assert result.ret == 0


def test_server_without_a_key_needs_no_key(project: Project, fakes: Fakes) -> None:
    attached(project, fakes().base_url, "-k", "wrong_key")
    assert project.outcomes() == {"boot::test_refuses_a_wrong_key[]": "N/A"}


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("no-openai", "is this an OpenAI-compatible server?"),
        ("chat-500", "the first chat was answered 500"),
    ],
)
def test_server_that_does_not_serve_fails_the_boot_gate(
    project: Project, fakes: Fakes, faults: str, message: str
) -> None:
    result = attached(project, fakes(faults).base_url, "-m", "boot")
    assert result.ret == 1
    assert project.outcomes()["boot::test_boots[]"] == "FAIL"
    assert message in result.stdout.str()
