"""Every phase of a load is driven with probes beside it, and a hang ends it in time."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.raw import RawServer
from servers.scripted import CountingServer, Generation, ScriptedModel

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.client.questions import Questions
from pytest_vllm_gates.load import arrivals, checks, driver
from pytest_vllm_gates.load.driver import LoadTarget
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.requests import Maker
from pytest_vllm_gates.load.trace import Arrival, BatchRequest, TraceSelection
from pytest_vllm_gates.load.types import DrivenLoad, Limit, Workers
from pytest_vllm_gates.long_context.prompts import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.load.types import LoadResult, Phase
    from pytest_vllm_gates.server.metrics import Metrics

TRAFFIC = planned_traffic(
    {
        "concurrency": 3, "requests": 9, "seconds": 5, "rate": 40.0,
        "prompt_tokens": [20, 30], "output_tokens": [3, 6], "shared_tokens": 8,
    }
)  # fmt: skip
CHAT = "/v1/chat/completions"
QUESTIONS = Questions(answer_tokens=8, filler="Hm. ", questions=("Why?", "Who?"))


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[CountingServer]:
    with running(CountingServer(hangs=getattr(request, "param", False))) as server:
        yield server


def loader(
    endpoint: Endpoint, server_metrics: Metrics | None, error: str = "", **more: Any
) -> LoadTarget:
    options: dict[str, Any] = {"stall_s": 20.0, "traffic": TRAFFIC} | more
    return LoadTarget(
        endpoint=endpoint,
        family=families.load("qwen3.5", Path()),
        text=range(200),
        questions=QUESTIONS,
        metrics=server_metrics,
        canary=lambda: Completion(content="Paris.", error=error),
        answer_s=10.0,
        **options,
    )


def load(endpoint: Endpoint, **more: Any) -> LoadResult:
    with metrics(endpoint) as server_metrics:
        return loader(endpoint, server_metrics, **more).load()


def test_every_phase_is_driven_and_counted(server: CountingServer) -> None:
    load_result = load(server.endpoint)
    assert [phase.name for phase in load_result.phases] == ["streams", "arrivals", "crowd"]
    assert [len(phase.answers) for phase in load_result.phases] == [9, 9, 9]
    assert checks.unanswered(load_result, TRAFFIC.limits)[0] == []
    findings, cases = checks.uncounted(load_result)
    assert (findings, [case.name for case in cases]) == ([], ["streams", "arrivals"])
    assert {probe.name for probe in load_result.probes} >= {"Why?", "ticket, whole"}
    assert checks.changed(load_result, invariant=True)[0] == []
    assert checks.mixed_tickets(load_result)[0] == []
    assert checks.not_recovered(load_result, invariant=True)[0] == []
    assert load_result.soak == ()


def test_no_request_is_sent_after_the_planned_seconds(server: CountingServer) -> None:
    slow = TRAFFIC.model_copy(update={"rate": 2.0, "seconds": 1.0})
    load_result = load(server.endpoint, traffic=slow)
    assert len(load_result.phases[1].answers) <= 2


@pytest.mark.parametrize("server", [True], indirect=True)
def test_a_server_that_hangs_ends_the_load(server: CountingServer) -> None:
    load_result = load(server.endpoint, stall_s=0.5)
    (phase,) = load_result.phases
    assert phase.hang
    assert phase.hang.health == "200"
    assert load_result.rest is None
    assert all("nothing came for 0.5 s" in answer.error for answer in phase.answers)


def test_server_that_fails_the_canary_is_not_loaded(server: CountingServer) -> None:
    load_result = load(server.endpoint, error="answered 500")
    assert (load_result.phases, load_result.probes, server.generated) == ((), (), 0)


def test_workers_share_every_phase(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[Workers] = []

    def alone(*arguments: Any, workers: Workers, **more: Any) -> DrivenLoad:
        shared.append(workers)
        return measure(*arguments, **more)

    monkeypatch.setattr(driver, "measure", alone)
    monkeypatch.setattr(driver, "LEAST_BLOCK_S", 0.1)
    load_result = load(server.endpoint, soak_s=0.2, workers=Workers(2))
    assert shared == [Workers(2)] * (len(load_result.phases) + len(load_result.soak))
    assert len(shared) > 3


def test_a_soak_is_kept_in_blocks(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LEAST_BLOCK_S", 0.1)
    load_result = load(server.endpoint, soak_s=5.0)
    assert len(load_result.soak) >= 2
    assert [block.at_s for block in load_result.soak] == sorted(
        block.at_s for block in load_result.soak
    )
    assert all(block.requests and not block.failed for block in load_result.soak)
    assert all(block.memory_bytes is None for block in load_result.soak)


def test_arrivals_follow_the_planned_process_and_rate(server: CountingServer) -> None:
    constant = TRAFFIC.model_copy(update={"process": "constant"})
    _, phase, _ = load(server.endpoint, traffic=constant).phases
    assert phase.schedule
    assert (phase.schedule.process, phase.schedule.rate) == ("constant", 40.0)
    assert phase.schedule.intended_s == pytest.approx([number / 40 for number in range(9)])
    pairs = zip(phase.schedule.intended_s, phase.schedule.sent_s, strict=True)
    assert all(sent is not None and sent >= intended for intended, sent in pairs)


def test_a_trace_is_replayed_in_place_of_arrivals(server: CountingServer) -> None:
    entries = (Arrival(0.0, 50, 4), Arrival(0.2, 30, 100), Arrival(0.4, 600, 5))
    fast = TRAFFIC.model_copy(update={"trace_speed": 2.0})
    trace = TraceSelection("trace.csv", "BurstGPT trace", entries, left_out=1)
    load_result = load(server.endpoint, traffic=fast, trace=trace, context=120)
    streams, phase, crowd = load_result.phases
    assert [streams.name, phase.name, crowd.name] == ["streams", "trace", "crowd"]
    planned = [(lengths.prompt_tokens, lengths.output_tokens) for lengths in phase.asked.values()]
    assert planned == [(50, 4), (20, 100), (115, 5)]
    assert phase.schedule
    assert phase.schedule.intended_s == pytest.approx([0.0, 0.1, 0.2])
    assert checks.unanswered(load_result, fast.limits)[0] == checks.uncounted(load_result)[0] == []
    assert load_result.trace
    assert load_result.trace.as_evidence() == {
        "file": "trace.csv", "format": "BurstGPT trace", "requests": 3, "left_out": 1, "cut": 2,
        "speed": 2.0,
    }  # fmt: skip


def test_a_batch_file_goes_out_at_the_planned_rate() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}
    entries = [
        BatchRequest(f"request-{number}", CHAT, {**body, "seed": number}) for number in range(300)
    ]
    trace = TraceSelection("batch.jsonl", "OpenAI batch file", tuple(entries), left_out=0)
    quick = TRAFFIC.model_copy(update={"seconds": 1.0})
    with running(ScriptedModel(lambda _: Generation("It is cold."))) as scripted:
        target = loader(scripted.endpoint, None, traffic=quick)
        maker = Maker(scripted.endpoint, quick, range(200))
        phase, replay = target._replay(maker, trace, 100.0)
    assert len(phase.answers) == replay.requests
    assert 80 <= replay.requests <= 100  # so many a second, for the second that is planned
    assert replay.speed is None
    assert {answer.error for answer in phase.answers} == {""}
    assert phase.schedule
    assert (phase.schedule.process, phase.schedule.rate) == ("poisson", 100.0)
    assert [
        body_sent["seed"]
        for body_sent in sorted(scripted.chats_seen, key=lambda body_sent: int(body_sent["seed"]))
    ] == [*range(replay.requests)]
    sent = scripted.chats_seen[0]
    assert (sent["model"], sent["stream"], sent["temperature"]) == ("alias", True, 0.5)
    assert sent["stream_options"]["continuous_usage_stats"] is True


def test_a_ramp_goes_up_until_a_rate_is_not_kept(server: CountingServer) -> None:
    ramp = {"growth": 4.0, "seconds": 0.1, "refine": 0}
    quick = TRAFFIC.model_copy(update={"ramp": TRAFFIC.ramp.model_copy(update=ramp), "rate": 100.0})
    progress: list[str] = []

    def judged(rate: float, _: Phase) -> Limit | None:
        return Limit("enough", clients=False) if rate > 1000 else None

    load_result = load(server.endpoint, traffic=quick, ramp=judged, progress=progress.append)
    assert [step.rate for step in load_result.ramp] == [100.0, 400.0, 1600.0]
    assert [len(step.phase.answers) for step in load_result.ramp] == [20, 40, 160]
    assert progress[-1] == "qwen3.5: ramp, 1600 requests a second not kept: enough"
    assert load_result.rest is not None
    assert [phase.name for phase in load_result.phases] == ["streams", "arrivals", "crowd"]


@pytest.fixture
def silent() -> Iterator[Endpoint]:
    """A server that takes connections, many or few, and does nothing with them."""
    with running(RawServer(None, backlog=4096)) as server:
        yield server.endpoint


def test_rate_beyond_the_client_is_reported_as_client_limit(silent: Endpoint) -> None:
    fast = TRAFFIC.model_copy(update={"requests": 4000, "process": "constant"})
    target = loader(silent, None, traffic=fast, stall_s=0.2)
    phase = target._arrivals("arrivals", Maker(silent, fast, range(200)), 1e6)
    message = arrivals.schedule_fault(phase)
    assert message.startswith(("this client falls ", "this client could not send ")), message


def test_slow_accepts_of_the_server_are_not_client_lag() -> None:
    plan = TRAFFIC.model_copy(update={"requests": 30})
    with running(RawServer(None, backlog=1)) as server:
        target = loader(server.endpoint, None, traffic=plan, stall_s=0.5)
        phase = target._arrivals("arrivals", Maker(server.endpoint, plan, range(200)), 60.0)
    assert all(answer.error for answer in phase.answers)
    assert arrivals.schedule_fault(phase) == ""
    assert statistics.median(phase.late_s) < 0.2
