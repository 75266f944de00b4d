"""Two lanes in pairs of boots: side by side if they fit, else in turns; all of them end."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import CountingServer

from pytest_vllm_gates.catalog.plans import planned_throughput
from pytest_vllm_gates.outcomes import Blocked
from pytest_vllm_gates.process import guard
from pytest_vllm_gates.server.types import Boot, Failure
from pytest_vllm_gates.session.against.boots import LaneComparison, first_is_theirs, server_of
from pytest_vllm_gates.session.launch import Launch
from pytest_vllm_gates.throughput.decision import Conclusion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from servers.scripted import ServerAnswer, ServerRequest

FEW = {"pairs": [1, 2], "groups": 4, "margin": 0.9}
PLAN = planned_throughput(
    {
        "concurrency": 2, "requests": 2, "prompt_tokens": 6, "output_tokens": 3, "against": FEW,
        "unfit": {"client_late": 1.0, "steal": 1.0, "others": 1.0},
    }
)  # fmt: skip
SLOW_S = 0.1


class SlowServer(CountingServer):
    """Answers each completion later."""

    def answer_to(self, request: ServerRequest) -> ServerAnswer:
        if request.method == "POST":
            time.sleep(SLOW_S)
        return super().answer_to(request)


@dataclass
class Booted:
    """A running server, as a boot returns it."""

    server: CountingServer
    up: list[Booted]
    process: None = None

    def stop(self) -> int:
        if self in self.up:
            self.up.remove(self)
        return 0


@dataclass
class Lane:
    """Replaces a run of one lane: it boots the given server or failure."""

    server: CountingServer
    up: list[Booted]
    booted: list[str]
    fails: Callable[[list[Booted]], Boot | None] = lambda _: None
    boots: dict[str, Boot] = field(default_factory=dict)
    environment: None = None
    lane: Any = field(default_factory=lambda: SimpleNamespace(name="a lane"))
    machine: Any = field(default_factory=lambda: SimpleNamespace(gpus=()))
    options: Any = field(default_factory=lambda: SimpleNamespace(stall_timeout_s=10.0))

    def boot(self, folder: Path) -> tuple[Boot, Booted | None]:
        self.booted.append(folder.name)
        if failed := self.fails(self.up):
            return failed, None
        started = Booted(self.server, self.up)
        self.up.append(started)
        return Boot(endpoint=self.server.endpoint), started


def lacks_memory(up: list[Booted]) -> Boot | None:
    """Return the failure of a boot that preflight refused, if another server is up."""
    checks = [{"name": "free_memory", "state": "fails"}, {"name": "port", "state": "ok"}]
    return Boot(failure=Failure("no room"), evidence={"preflight": checks}) if up else None


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with running(CountingServer()) as server:
        yield server


def compared(server: CountingServer, folder: Path, **theirs: Any) -> tuple[LaneComparison, Lane]:
    up: list[Booted] = []
    booted: list[str] = []
    ours = Lane(server, up, booted)
    return LaneComparison(
        ours=ours,  # type: ignore[arg-type]
        theirs=Lane(server, up, booted, **theirs),  # type: ignore[arg-type]
        subject=SimpleNamespace(family=SimpleNamespace(name="a family")),  # type: ignore[arg-type]
        plan=PLAN,
        folder=folder,
        progress=lambda _: None,
        boot=lambda run, _, folder, __: run.boot(folder),
        _text=range(40),
    ), ours


def test_servers_that_fit_are_measured_in_turns(server: CountingServer, tmp_path: Path) -> None:
    comparison, ours = compared(server, tmp_path)
    assert comparison.measure(whole=False).answer is Conclusion.NO_REGRESSION
    (pair,) = comparison.pairs
    assert (comparison.side_by_side, pair.side_by_side, len(pair.groups)) == (True, True, 4)
    assert sorted(ours.booted) == ["0-ours", "0-theirs"]
    assert ours.up == []
    times = sorted(block.at_s for group in pair.groups for block in (*group.ours, *group.theirs))
    assert len(set(times)) == 16


def test_whole_server_is_paused_except_its_guards(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "descendants", lambda root: [root + 1, root + 2, root + 3])
    booted = SimpleNamespace(process=SimpleNamespace(pid=40))
    launched = Launch(Boot(endpoint=server.endpoint), booted)  # type: ignore[arg-type]
    with server_of(launched, Lane(server, [], [])) as measured:  # type: ignore[arg-type]
        assert (measured.processes(), measured.stoppable()) == ([40, 41, 42, 43], [42, 43])


@pytest.mark.slow
def test_whole_measurement_uses_every_pair(server: CountingServer, tmp_path: Path) -> None:
    comparison, _ = compared(server, tmp_path)
    comparison.measure(whole=True)
    assert len(comparison.pairs) == 2
    stored = json.loads((tmp_path / "a family.json").read_text(encoding="utf-8"))
    assert len(stored["pairs"]) == 2


@pytest.mark.slow
def test_servers_that_do_not_fit_run_one_by_one(server: CountingServer, tmp_path: Path) -> None:
    comparison, ours = compared(server, tmp_path, fails=lacks_memory)
    ours.fails = lacks_memory
    assert comparison.measure(whole=True).answer is Conclusion.NO_REGRESSION
    assert (comparison.side_by_side, [len(pair.groups) for pair in comparison.pairs]) == (
        False,
        [4, 4],
    )
    assert not any(pair.side_by_side for pair in comparison.pairs)
    first, second, again = ours.booted[:3]
    assert first != second == again
    assert len(ours.booted) == 5
    assert ours.up == []
    group = comparison.pairs[0].groups[0]
    assert [block.name for block in group.ours] == [block.name for block in group.theirs]


def test_failed_boot_blocks_and_leaves_no_server(server: CountingServer, tmp_path: Path) -> None:
    dead = Boot(failure=Failure("no such flag"))
    comparison, ours = compared(server, tmp_path, fails=lambda _: dead)
    with pytest.raises(Blocked, match="no such flag"):
        comparison.measure(whole=False)
    assert ours.up == []


def test_slower_lane_is_a_regression(server: CountingServer, tmp_path: Path) -> None:
    with running(SlowServer()) as slow:
        comparison, ours = compared(server, tmp_path)
        ours.server = slow
        assert comparison.measure(whole=False).answer is Conclusion.REGRESSION


def test_order_of_boots_is_random_and_balanced() -> None:
    drawn = [first_is_theirs(number) for number in range(40)]
    assert sum(drawn) == 20
    assert {(*drawn[at : at + 2],) for at in range(0, 40, 2)} == {(True, False), (False, True)}
