"""Effects of other clients on a server that this run did not start are never its fault."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pytest

from load.test_checks import IDLE, PARIS, answer, loaded, phase, stopped
from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.fixtures.checking import Checking
from pytest_vllm_gates.outcomes import Inconclusive
from pytest_vllm_gates.server.watchdog import RestState
from pytest_vllm_gates.session.items import Evidence

if TYPE_CHECKING:
    from pytest_vllm_gates.load.types import LoadResult

FEW_PLACES = phase(seen=tuple(replace(IDLE, running=2, waiting=2, at=at / 10) for at in range(12)))
STALLED = phase(stopped(0), *(answer(number, number * 0.5, each=0.05) for number in range(1, 8)))
SLOW = phase(*(answer(number, each=3.0) for number in range(4)))
BUSY = RestState(PARIS, in_flight=2, kv_usage=0.4, memory_bytes=None)
FAILING = {
    "tokens_are_as_many_as_the_server_counts": loaded(),
    "planned_streams_run_at_once": loaded(FEW_PLACES),
    "no_stream_stops_while_others_go_on": loaded(STALLED),
    "latencies_are_within_their_limits": loaded(SLOW),
    "server_comes_to_rest_after_load": loaded(rest=BUSY),
}
"""For each check of the load gate a load that fails it."""


@dataclass
class Started:
    """Says whether this run started the server, as `Launch` does."""

    owned: bool


class Judge(Protocol):
    """Judges a load by one check of the gate."""

    def __call__(self, check: str, load_result: LoadResult, *, owned: bool) -> None: ...


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """The gate's own checks. Its mark is known only to runs with --model."""
    request.config.addinivalue_line("markers", "load: the load gate")
    gate = importlib.import_module("pytest_vllm_gates.gates.test_load")
    evidence = Evidence(request.node)
    checking = Checking(
        "x", own=(), shared=(), version=None, evidence=evidence, tell=lambda _: None
    )

    def judge(check: str, load_result: LoadResult, *, owned: bool) -> None:
        values = {
            "loaded": load_result, "launch": Started(owned), "checking": checking,
            "evidence": evidence, "traffic": planned_traffic(), "invariant": False,
        }  # fmt: skip
        function = getattr(gate, f"test_{check}")
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        function(**{name: values[name] for name in names})

    return judge


def more_than_asked(load_result: LoadResult) -> LoadResult:
    """Return a load in which the server counts five tokens more than this run read."""
    first, *rest = load_result.phases
    assert first.after
    after = replace(first.after, generated=first.after.generated + 5)
    return replace(load_result, phases=(replace(first, after=after), *rest))


@pytest.mark.parametrize("check", FAILING)
def test_a_server_that_others_use_is_not_judged(judge: Judge, check: str) -> None:
    with pytest.raises(Inconclusive, match="other clients used this server meanwhile"):
        judge(check, more_than_asked(FAILING[check]), owned=False)


@pytest.mark.parametrize("check", FAILING)
def test_a_server_of_ones_own_is_judged(judge: Judge, check: str) -> None:
    with pytest.raises(pytest.fail.Exception):
        judge(check, more_than_asked(FAILING[check]), owned=True)


@pytest.mark.parametrize("check", list(FAILING)[1:])
def test_a_server_that_nobody_else_used_is_judged(judge: Judge, check: str) -> None:
    with pytest.raises(pytest.fail.Exception):
        judge(check, FAILING[check], owned=False)
