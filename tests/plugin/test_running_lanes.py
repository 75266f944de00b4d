"""Two lanes by URL: each with its own way in, one version of vLLM each, and paired throughput."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import CountingServer, ServerRequest

import pytest_vllm_gates
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers.scripted import ServerAnswer

    from conftest import Project

THROUGHPUT = Path(pytest_vllm_gates.__file__).parent / "gates" / "test_throughput.py"
TOKEN = "t0ken-for-the-canary-0123"
LANE = """\
title = "a running server"
base_url = "{url}"
checkpoint = "miniature"

[headers]
x-canary = "{header}"

[serve]
max_model_len = {context}

[throughput]
concurrency = 2
requests = 2
prompt_tokens = 6
output_tokens = 3

[throughput.against]
margin = 0.9

[throughput.running]
rounds = [1, 2]
groups = 4

[throughput.unfit]
client_late = 1.0
steal = 1.0
others = 1.0
"""


class RunningServer(CountingServer):
    """Serves chats, completions and metrics to requests with the right header alone."""

    def __init__(self, version: str, header: str) -> None:
        super().__init__()
        self.version, self.header = version, header
        self.strangers: list[str] = []
        self.refuses = False

    def answer_to(self, request: ServerRequest) -> ServerAnswer:
        if self.refuses:
            return 401, {"error": "Unauthorized"}
        if request.headers.get("x-canary") != self.header:
            self.strangers.append(request.path)
            return 404, {"error": "no route"}
        known: dict[str, Any] = {
            "/version": {"version": self.version},
            "/v1/models": {"data": [{"id": "theirs", "max_model_len": 4096}]},
            "/tokenize": {"tokens": list(range(200))},
            "/health": {},
        }
        if request.path in known:
            return 200, known[request.path]
        if request.path == "/metrics":
            return 200, super().answer_to(request)[1]
        return super().answer_to(request)


@pytest.fixture
def lanes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[RunningServer, RunningServer]]:
    """A canary that wants a secret header, and a stable server that wants another."""
    monkeypatch.setenv("CANARY_TOKEN", TOKEN)
    shutil.copy(THROUGHPUT, verdict_gates.GATES)
    with contextlib.ExitStack() as stack:
        canary = stack.enter_context(running(RunningServer("0.33.0", TOKEN)))
        stable = stack.enter_context(running(RunningServer("0.32.0", "never")))
        for name, server, header, context in (
            ("canary", canary, "${CANARY_TOKEN}", 4096),
            ("stable", stable, "never", 2048),
        ):
            text = LANE.format(url=server.endpoint.base_url, header=header, context=context)
            project.write(f"lanes/{name}.toml", text)
        yield canary, stable


def compared(project: Project, *more: str) -> pytest.RunResult:
    return project.pytest(
        "--model", "qwen3.5", "--lane", "canary", "--against", "stable", "--gates-report", "out",
        *more,
    )  # fmt: skip


def test_two_urls_are_measured_in_turns(
    project: Project, lanes: tuple[RunningServer, RunningServer]
) -> None:
    result = compared(project, "-m", "throughput")
    outcomes = project.outcomes()
    assert outcomes["throughput::test_is_as_fast_as_the_other_lane[]"] == "PASS", result.outlines
    assert outcomes["throughput::test_is_as_fast_as_recorded[]"] == "N/A"
    assert [server.strangers for server in lanes] == [[], []], "every request has its header"
    assert lanes[0].generated == lanes[1].generated > 0
    (sentence,) = [line for line in result.outlines if "canary against stable: NO REGR" in line]
    assert "which is not measured here" in sentence


def test_versions_and_known_flags_are_in_the_difference(
    project: Project, lanes: tuple[RunningServer, RunningServer]
) -> None:
    compared(project, "-m", "boot")
    changes = {
        (change["axis"], change["name"]): change
        for change in project.verdict()["bundle"]["changed"]
    }
    assert changes["vllm", "vllm"]["ours"] == "0.33.0"
    assert changes["vllm", "vllm"]["theirs"] == "0.32.0"
    assert changes["flags", "qwen3.5: max_model_len"]["ours"] == "4096"
    assert [server.strangers for server in lanes] == [[], []]


def test_value_of_a_header_is_written_nowhere(
    project: Project, lanes: tuple[RunningServer, RunningServer]
) -> None:
    result = compared(project, "-m", "boot", "-v")
    assert lanes
    assert TOKEN not in result.stdout.str() + result.stderr.str()
    for path in project.report.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path
    assert "canary" in json.dumps(project.verdict())


def test_variable_that_is_not_set_is_reported_before_any_request(
    project: Project,
    lanes: tuple[RunningServer, RunningServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CANARY_TOKEN")
    assert "CANARY_TOKEN" not in os.environ
    result = compared(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*lane canary: the header x-canary names ${CANARY_TOKEN}*not set*"]
    )
    assert not lanes[0].requests_seen


@pytest.mark.parametrize("ours", [True, False])
def test_lane_by_url_finds_its_checkpoint_as_base_url_does(
    project: Project, lanes: tuple[RunningServer, RunningServer], ours: bool
) -> None:
    """The server names its weights; a lane that names none is judged by those."""
    file = project.path / "lanes" / "stable.toml"
    file.write_text(file.read_text().replace('checkpoint = "miniature"\n', ""))
    stable = lanes[1]
    models = {"data": [{"id": "theirs", "root": "some-org/Other"}]}
    answer_to = stable.answer_to

    def answer(request: ServerRequest) -> ServerAnswer:
        return (200, models) if request.path == "/v1/models" else answer_to(request)

    stable.answer_to = answer  # type: ignore[method-assign]
    if not ours:
        stable.header = None  # type: ignore[assignment]
    where = ["--lane", "stable"] if ours else ["--base-url", stable.endpoint.base_url]
    project.pytest("--model", "qwen3.5", *where, "--gates-report", "out", "-m", "boot")
    (family,) = project.verdict()["families"]
    assert family["checkpoint"]["name"] == "some-org--Other"


def test_other_server_that_is_down_is_named_before_the_gates_run(
    project: Project, lanes: tuple[RunningServer, RunningServer]
) -> None:
    assert lanes
    closed = LANE.format(url="http://127.0.0.1:9/v1", header="never", context=2048)
    project.write("lanes/stable.toml", closed)
    result = compared(project, "-m", "boot")
    (reason,) = [line for line in project.verdict()["reasons"] if "could not be reached" in line]
    assert reason.startswith(
        "lane stable could not be reached: no server answers at http://127.0.0."
    )
    assert "Connection refused; next: curl -v" in reason
    assert "lane stable could not be reached" in result.stdout.str().partition("gates/test_boot")[0]
    assert project.outcomes()["boot::test_boots[]"] == "PASS"


def test_refused_key_of_a_lane_names_the_lanes_variable(
    project: Project,
    lanes: tuple[RunningServer, RunningServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY_KEY", "of-yesterday")
    canary = project.path / "lanes" / "canary.toml"
    canary.write_text('api_key_env = "CANARY_KEY"\n' + canary.read_text())
    lanes[0].refuses = True
    compared(project, "-m", "boot")
    reasons = [
        test["reason"]
        for gate in project.verdict()["families"][0]["gates"]
        for test in gate["tests"]
    ]
    (reason,) = {reason for reason in reasons if "refused the API key" in reason}
    assert "next: check that CANARY_KEY (api_key_env of lane canary) contains this" in reason
    assert "OPENAI_API_KEY" not in reason
