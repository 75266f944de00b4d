"""The load gate drives, judges and records what the command line requests."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import CountingServer

from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers.scripted import ServerAnswer, ServerRequest

    from conftest import Project

LOAD = verdict_gates.GATES / "test_load.py"

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:46.9951690,396,0
2023-11-16 18:15:47.2224670,879,55
"""
LANE = """\
title = "counts"
base_url = "{url}"
batch_invariant = true

[load]
requests = 12
concurrency = 4
rate = {rate}

[load.ramp]
seconds = 0.2
steps = 2
refine = 0
achieved = 0.2
"""


class AttachedServer(CountingServer):
    """Answers the requests of attaching, too; its context is 512 tokens."""

    def answer_to(self, request: ServerRequest) -> ServerAnswer:
        if request.path == "/v1/models":
            return 200, {"data": [{"id": "m", "max_model_len": 512}]}
        if request.path == "/tokenize":
            return 200, {"tokens": [*range(len(request.data))]}
        return super().answer_to(request)


@pytest.fixture
def url() -> Iterator[str]:
    with running(AttachedServer()) as server:
        yield server.endpoint.base_url


@pytest.fixture(autouse=True)
def only_load(
    project: Project,  # noqa: ARG001 - after it has put its own in place
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Put the load gate in place of those a project's tests have."""
    gates = tmp_path_factory.mktemp("gates")
    shutil.copy(LOAD, gates)
    monkeypatch.setattr(verdict_gates, "GATES", gates)


def run(project: Project, url: str, *arguments: str, rate: float = 20.0) -> dict[str, Any]:
    """Return the load gate's tests by name."""
    project.write("lanes/counts.toml", LANE.format(url=url, rate=rate))
    project.pytest(
        "--model", "qwen3.5", "--lane", "counts", "--checkpoint", "miniature",
        "--gates-report", "out", *arguments,
    )  # fmt: skip
    (gate,) = project.verdict()["families"][0]["gates"]
    return {test["test"].partition("[")[0]: test for test in gate["tests"]}


def test_a_trace_and_a_ramp(project: Project, url: str) -> None:
    project.write("trace.csv", AZURE)
    tests = run(project, url, "--load-trace", "trace.csv", "--ramp")
    arrivals = tests["test_requests_go_out_as_asked"]
    assert arrivals["outcome"] == "PASS", arrivals
    assert arrivals["evidence"]["arrivals"]["trace"]["process"] == "trace"
    assert arrivals["evidence"]["trace"] == {
        "file": str(project.path / "trace.csv"), "format": "Azure LLM inference trace",
        "requests": 2, "left_out": 1, "cut": 1, "speed": 1.0,
    }  # fmt: skip
    assert tests["test_every_request_is_answered_whole"]["outcome"] == "PASS"
    assert tests["test_tokens_are_as_many_as_the_server_counts"]["outcome"] == "PASS"
    ramp = tests["test_planned_rate_is_below_capacity"]
    assert ramp["evidence"]["ramp"]["steps"][0]["rate"] == 20.0
    assert ramp["outcome"] in {"PASS", "INCONCLUSIVE"}, ramp  # a busy machine may be the limit


def test_ramp_runs_only_with_its_option(project: Project, url: str) -> None:
    tests = run(project, url)
    ramp = tests["test_planned_rate_is_below_capacity"]
    assert (ramp["outcome"], ramp["reason"]) == (
        "N/A", "no ramp was run: request it with --ramp, unless the load before it failed",
    )  # fmt: skip
    arrivals = tests["test_requests_go_out_as_asked"]["evidence"]["arrivals"]
    assert arrivals["streams"] is arrivals["crowd"] is None
    assert (arrivals["arrivals"]["process"], arrivals["arrivals"]["rate"]) == ("poisson", 20.0)


def test_report_shows_the_figures_of_a_load(project: Project, url: str) -> None:
    tests = run(project, url)
    figures = tests["test_latencies_are_within_their_limits"]["evidence"]["figures"]
    assert list(figures["streams"]["ttft_s"]) == ["p50", "p90", "p95", "p99"]
    looks = tests["test_planned_streams_run_at_once"]["evidence"].get("looks")
    assert looks is not None
    page = (project.report.parent / "out" / "report.html").read_text(encoding="utf-8")
    for words in ("Latencies under load", "TTFT, streams", "Tokens and goodput", "E2E, arrivals",
                  "Queue, KV cache and preemptions"):  # fmt: skip
        assert words in page, words
