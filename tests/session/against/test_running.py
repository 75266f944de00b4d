"""Two running servers are measured in turns: nothing is booted, paused or ended."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.scripted import CountingServer, Text

from pytest_vllm_gates.catalog.plans import planned_throughput
from pytest_vllm_gates.outcomes import Inconclusive, Infrastructure
from pytest_vllm_gates.server.types import Boot, Failure
from pytest_vllm_gates.session.against import running as against_running
from pytest_vllm_gates.session.against.running import RunningComparison
from pytest_vllm_gates.throughput.decision import Conclusion
from session.against.test_boots import SlowServer

if TYPE_CHECKING:
    from pathlib import Path

    from servers.scripted import ServerAnswer

PLAN = planned_throughput(
    {
        "concurrency": 2, "requests": 2, "prompt_tokens": 6, "output_tokens": 3,
        "against": {"margin": 0.9}, "running": {"rounds": [1, 2], "groups": 4},
        "unfit": {"client_late": 1.0, "steal": 1.0, "others": 1.0},
    }
)  # fmt: skip


class BusyServer(CountingServer):
    """Has another client's request in flight."""

    def answer_to(self, request: object) -> ServerAnswer:
        status, body = super().answer_to(request)  # type: ignore[arg-type]
        if isinstance(body, Text):
            body = Text(body.text.replace("running 0", "running 3"))
        return status, body


def compared(
    folder: Path, *servers: CountingServer, said: list[str] | None = None
) -> RunningComparison:
    def run(server: CountingServer) -> SimpleNamespace:
        return SimpleNamespace(
            server=server, boots={}, environment=None, lane=SimpleNamespace(name="a lane"),
            machine=SimpleNamespace(gpus=()), options=SimpleNamespace(stall_timeout_s=10.0),
        )  # fmt: skip

    ours, theirs = map(run, servers)
    return RunningComparison(
        ours=ours,  # type: ignore[arg-type]
        theirs=theirs,  # type: ignore[arg-type]
        subject=SimpleNamespace(family=SimpleNamespace(name="a family")),  # type: ignore[arg-type]
        plan=PLAN,
        folder=folder,
        progress=lambda text: said.append(text) if said is not None else None,
        boot=lambda run, *_: (Boot(endpoint=run.server.endpoint), None),
        _text=range(40),
    )


@pytest.fixture(autouse=True)
def _replaceable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `dataclasses.replace` accept the fake runs, and shorten the warm-up."""
    monkeypatch.setattr("dataclasses.replace", lambda run, **_: run)
    monkeypatch.setattr(against_running, "WARM_UP_BLOCKS", 1)


def test_equal_servers_pass_in_turns(tmp_path: Path) -> None:
    said: list[str] = []
    with running(CountingServer()) as ours, running(CountingServer()) as theirs:
        comparison = compared(tmp_path, ours, theirs, said=said)
        assert comparison.measure(whole=False).answer is Conclusion.NO_REGRESSION
        (round_,) = comparison.pairs
        assert ours.generated == theirs.generated > 0
    before, after = said
    assert re.fullmatch(
        r"a family: first look at the speeds in about \d+\.\d min, the last in \d+ min", before
    )
    assert re.fullmatch(
        r"a family: round 1 of at most 2: .+ tokens/s \(.+ to .+\), NO REGRESSION", after
    )
    assert len(before) < 80
    assert len(round_.groups) == 4
    assert round_.boots_s == 0.0
    times = {block.at_s for group in round_.groups for block in (*group.ours, *group.theirs)}
    assert len(times) == 16
    evidence = comparison.evidence()
    assert evidence["runs"] is True
    stored = json.loads((tmp_path / "a family.json").read_text(encoding="utf-8"))
    assert len(stored["pairs"]) == 1
    assert evidence["seed"] in stored["pairs"][0]["groups"][0]["ours"][0]["name"]


def test_two_comparisons_have_unlike_prompts(tmp_path: Path) -> None:
    """A block's prompts depend on its name: the servers may have cached earlier ones."""
    server = CountingServer()
    assert compared(tmp_path, server, server).seed != compared(tmp_path, server, server).seed
    server.server_close()


def test_slower_server_is_a_regression(tmp_path: Path) -> None:
    with running(SlowServer()) as ours, running(CountingServer()) as theirs:
        comparison = compared(tmp_path, ours, theirs)
        assert comparison.measure(whole=False).answer is Conclusion.REGRESSION


@pytest.mark.parametrize("busy", [0, 1])
def test_server_that_others_use_is_inconclusive(tmp_path: Path, busy: int) -> None:
    with running(BusyServer()) as used, running(CountingServer()) as idle:
        servers = (used, idle) if busy == 0 else (idle, used)
        with pytest.raises(Inconclusive, match="3 requests are in flight") as caught:
            compared(tmp_path, *servers).measure(whole=False)
        assert used.endpoint.base_url in str(caught.value)


def test_absent_server_is_infrastructure(tmp_path: Path) -> None:
    with running(CountingServer()) as server:
        comparison = compared(tmp_path, server, server)
        failure = Failure("no server answers at http://h/v1", infrastructure=True)
        comparison.boot = lambda *_: (Boot(failure=failure), None)
        with pytest.raises(Infrastructure, match="http://h/v1"):
            comparison.measure(whole=False)
