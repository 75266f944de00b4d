"""A fault around a server is not a regression: HOLD, its own sentence, and no incident."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from servers import running
from servers.scripted import ScriptedServer, ServerAnswer, ServerRequest, Text

from pytest_vllm_gates.environment import environment as environments
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from conftest import Fakes, Project

ABSENT = "http://127.0.0.1:9/v1"
JUNIT = "junit.xml"


def held(project: Project, url: str, *arguments: str) -> str:
    """Judge a server that is not reached; return the first reason."""
    result = project.pytest(
        "--model", "qwen3.5", "--base-url", url, "--gates-report", "out", "-m", "boot or words",
        "--junitxml", JUNIT, *arguments,
    )  # fmt: skip
    verdict = project.verdict()
    assert verdict["promotion"] == "HOLD"
    assert result.ret == verdict["exit_status"] == 1
    tests = [test for gate in verdict["families"][0]["gates"] for test in gate["tests"]]
    outcomes = {(test["outcome"], test.get("cause")) for test in tests}
    assert outcomes <= {("BLOCKED", "infrastructure"), ("N/A", None)}
    assert not list(project.report.rglob("incidents"))
    (reason,) = [reason for reason in verdict["reasons"] if "BLOCKED" in reason]
    assert "BLOCKED (infrastructure): " in reason
    assert "did not boot" not in reason
    return str(reason)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (ABSENT, "Connection refused"),
        ("http://no-such-host.invalid/v1", "the host's name is not known"),
    ],
)
def test_address_without_a_server_yields_hold(project: Project, url: str, says: str) -> None:
    reason = held(project, url)
    assert f"no server answers at {url}: " in reason
    assert says in reason


def test_failing_tls_yields_hold(project: Project, fakes: Fakes) -> None:
    url = fakes().base_url.replace("http:", "https:")
    assert "the TLS handshake failed" in held(project, url)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, {}, "the server refused the API key (401 on /v1/models)"),
        (403, {}, "forbids access (403 on /v1/models)"),
        (404, {"detail": "Not Found"}, "is this an OpenAI-compatible server?"),
        (429, {}, "a gateway limits the rate of requests (429 on /v1/models)"),
        (502, Text("<h1>Bad Gateway</h1>", "text/html"), "no server behind it answers (502"),
        (503, {}, "no server behind it answers (503"),
        (504, {}, "no server behind it answers (504"),
        (302, {}, "is this an OpenAI-compatible server?"),
        (200, Text("<form>Log in</form>", "text/html"), "is this an OpenAI-compatible server?"),
    ],
    ids=str,
)
def test_gateway_that_answers_instead_yields_hold(
    project: Project, status: int, body: object, says: str
) -> None:
    with running(ScriptedServer(lambda *_: (status, body))) as server:
        assert says in held(project, server.endpoint.base_url)


def test_server_that_meets_a_full_disk_while_it_serves_yields_hold(project: Project) -> None:
    project.lane("fills-after:2")
    result = project.pytest("--model", "qwen3.5", "--lane", "fake", "--gates-report", "out")
    verdict = project.verdict()
    assert verdict["promotion"] == "HOLD"
    assert result.ret == 1
    assert "DISK_FULL" in " ".join(verdict["reasons"])
    assert "FAIL" not in project.outcomes().values()
    assert not list(project.report.rglob("incidents"))


@pytest.mark.parametrize("status", [401, 429, 503])
def test_gateway_that_refuses_the_first_chat_yields_hold(project: Project, status: int) -> None:
    def answer(path: str, _: object) -> tuple[int, object]:
        return (200, {"data": [{"id": "m"}]}) if path == "/v1/models" else (status, {})

    with running(ScriptedServer(answer)) as server:
        assert f"({status} on /v1/chat/completions)" in held(project, server.endpoint.base_url)


def test_next_step_is_reported(project: Project) -> None:
    assert held(project, ABSENT).endswith(f"; next: curl -v {ABSENT}/models (boot, words)")


def test_boot_that_finds_the_disk_full_yields_hold(project: Project) -> None:
    result = project.gates(faults="disk-full")
    assert result.ret == 1
    assert project.verdict()["promotion"] == "HOLD"
    assert project.outcomes()["boot::test_boots[]"] == "BLOCKED"
    assert "BLOCKED (infrastructure): the server ended before" in project.verdict()["reasons"][0]
    assert "DISK_FULL" in project.verdict()["reasons"][0]
    assert not list(project.report.rglob("incidents"))


def test_environment_that_cannot_be_made_yields_hold(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if no index is reached: `uv` reports it, and nothing is known of the server."""

    def refuse(*_: object, **__: object) -> None:
        raise UserError("lane fake: uv cannot fetch vllm==0.32.0\nsee the network")

    monkeypatch.setattr(environments, "prepare", refuse)
    result = project.gates()
    assert result.ret == 1
    assert project.verdict()["promotion"] == "HOLD"
    assert project.verdict()["reasons"][0] == (
        "qwen3.5: 3 gates are BLOCKED (infrastructure): lane fake: uv cannot fetch vllm==0.32.0; "
        "see the network (boot, streaming, words)"
    )


def test_junit_has_the_reason_of_every_test(project: Project) -> None:
    held(project, ABSENT)
    cases = list(ET.parse(project.path / JUNIT).iter("testcase"))  # noqa: S314 - our own file
    assert cases
    for case in cases:
        skipped = case.find("skipped")
        assert skipped is not None
        if skipped.get("message") == "N/A: this run did not start the server":
            continue
        assert "Connection refused" in skipped.get("message", "")
        properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        assert (properties["outcome"], properties["cause"]) == ("BLOCKED", "infrastructure")


def test_junit_has_one_failure_of_a_server_that_does_not_boot(project: Project) -> None:
    project.gates("--junitxml", JUNIT, faults="dies")
    suite = next(ET.parse(project.path / JUNIT).iter("testsuite"))  # noqa: S314 - our own file
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    for case in suite.iter("testcase"):
        if case.find("failure") is None:
            skipped = case.find("skipped")
            assert skipped is not None
            assert "the server did not boot: " in skipped.get("message", "")


def test_server_that_hangs_up_is_a_regression(project: Project) -> None:
    """It accepted a new connection and closed it: that is the server's own doing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)

        threading.Thread(target=serve, daemon=True).start()
        project.pytest(
            "--model", "qwen3.5", "--base-url", url, "--gates-report", "out", "-m", "boot"
        )
        assert project.verdict()["promotion"] == "REJECT"
        assert "disconnected" in project.verdict()["reasons"][0]


class GoesAway(ScriptedServer):
    """Serves one chat; then nothing listens any more, or a gateway limits the requests."""

    def __init__(self, status: int | None) -> None:
        super().__init__()
        self.status, self.chats = status, 0

    def answer_to(self, request: ServerRequest) -> ServerAnswer:
        if request.path == "/v1/models":
            return 200, {"data": [{"id": "m"}]}
        if request.path == "/version":
            return 200, {"version": "0.32.0"}
        self.chats += 1
        if self.chats == 1:
            delta = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
            if self.status is None:
                self.socket.close()
            return 200, [{"choices": [delta]}]
        return self.status or 500, {"error": {"message": "slow down"}}


@pytest.mark.parametrize(
    ("status", "says"),
    [(None, "Connection refused"), (429, "limits the rate of requests"), (401, "API key")],
)
def test_server_that_is_no_longer_reached_yields_hold(
    project: Project, status: int | None, says: str
) -> None:
    server = GoesAway(status)
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    project.pytest(
        "--model", "qwen3.5", "--base-url", server.endpoint.base_url, "--gates-report", "out",
        "-m", "boot", "-k", "test_boots or sensibly",
    )  # fmt: skip
    assert project.outcomes() == {
        "boot::test_boots[]": "PASS",
        "boot::test_answers_sensibly[]": "BLOCKED",
    }
    verdict = project.verdict()
    assert verdict["promotion"] == "HOLD"
    assert "is no longer reached" in verdict["reasons"][0]
    assert says in verdict["reasons"][0]
    server.closing.set()
