"""A real server that wears out turns the endurance gate red by its own check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from e2e import gates, own_lane
from e2e.served import Served
from sweeps import named, sweep

from pytest_vllm_gates.client import http

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.report.progress import Progress

pytestmark = pytest.mark.real

HERE = Path(__file__).parent
WEARING = {"env": {"PYTHONPATH": str(HERE)}, "serve": {"middleware": "wearing_app.Wearing"}}
GATES = ("-m", "boot or endurance")
ANSWERS = "known_answers_stay_as_they_were"
TURNS = "every_turn_is_answered_for_its_own_agent"


@dataclass(frozen=True)
class Wear:
    """How a server wears out, the check that detects it, and its message."""

    name: str
    check: str
    says: str
    requests: int = 400


WEARS = [
    Wear("forgets", ANSWERS, "known answers have changed: since request 2"),
    Wear("mixes", TURNS, "does not contain its own", 160),
    Wear("loses", TURNS, "no answer: answered 500"),
]
SEEN_FROM_INSIDE = [
    Wear("keeps", "memory_and_handles_do_not_grow", "open files and sockets grow by", 1000),
    Wear("tires", "tokens_per_second_do_not_sink", "tokens a second are lost over the run", 1000),
]


@pytest.fixture(scope="module")
def wearing(gates_progress: Progress, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A real server that wears out on request."""
    served = Served(gates.MODEL, tmp_path_factory.mktemp("wearing"), gates_progress, WEARING)
    gates_progress.done()
    yield served
    served.stop()


def red(run: gates.GatesRun) -> dict[str, str]:
    """Return why the gate's tests failed, by their names without `test_`."""
    (family,) = run.verdict["families"]
    (gate,) = [gate for gate in family["gates"] if gate["gate"] == "endurance"]
    return {
        test["test"].partition("[")[0].removeprefix("test_"): test["reason"]
        for test in gate["tests"]
        if test["outcome"] == "FAIL"
    }


@pytest.mark.parametrize("wear", sweep(WEARS, lambda wear: wear.name, named("mixes")))
def test_a_worn_server_is_red(wear: Wear, wearing: Served, tmp_path: Path) -> None:
    endpoint = wearing.endpoint
    http.post(endpoint, f"/wear?{wear.name}", {}).raise_for_status()
    run = gates.run(
        tmp_path, "--base-url", endpoint.base_url, "--checkpoint", "miniature", *GATES,
        "--endurance", str(wear.requests), env={"OPENAI_API_KEY": endpoint.api_key or ""},
    )  # fmt: skip
    assert [*red(run)] == [wear.check], run.output
    assert wear.says in red(run)[wear.check]


@pytest.mark.slow  # a boot each, and a thousand requests
@pytest.mark.parametrize("wear", SEEN_FROM_INSIDE, ids=lambda wear: wear.name)
def test_a_server_that_grows_or_sinks_is_red(wear: Wear, tmp_path: Path) -> None:
    env = {**WEARING["env"], "WEAR": wear.name}
    own_lane.write(tmp_path, "worn", env=env, serve=WEARING["serve"])
    run = gates.run(tmp_path, "--lane", "worn", *GATES, "--endurance", str(wear.requests))
    assert [*red(run)] == [wear.check], run.output
    assert wear.says in red(run)[wear.check]


@pytest.mark.slow  # the same boot, and five hundred requests
def test_a_right_server_is_green(wearing: Served, tmp_path: Path) -> None:
    endpoint = wearing.endpoint
    http.post(endpoint, "/wear", {}).raise_for_status()
    run = gates.run(
        tmp_path, "--base-url", endpoint.base_url, "--checkpoint", "miniature", *GATES,
        "--endurance", "500", env={"OPENAI_API_KEY": endpoint.api_key or ""},
    )  # fmt: skip
    assert red(run) == {}
