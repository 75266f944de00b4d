"""Blocks send the same requests to every server, none twice, and name their faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.scripted import CountingServer

from pytest_vllm_gates.catalog.plans import planned_throughput
from pytest_vllm_gates.long_context.prompts import metrics
from pytest_vllm_gates.machine.cpu import Yardstick, work
from pytest_vllm_gates.throughput.blocks import BlockDriver, MeasuredServer

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAN = planned_throughput({"concurrency": 2, "requests": 4, "prompt_tokens": 6, "output_tokens": 5})


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with running(CountingServer()) as server:
        yield server


def driver(**more: object) -> BlockDriver:
    return BlockDriver(PLAN, range(40), 10.0, **more)  # type: ignore[arg-type]


def test_block_has_client_and_server_counts(server: CountingServer) -> None:
    with metrics(server.endpoint) as server_metrics:
        (block,) = driver().blocks(MeasuredServer(server.endpoint, server_metrics), "seed", 1)
    assert (block.faults, block.output_tokens) == ((), 20)
    assert block.took_s > 0
    assert block.output_tokens_per_s == pytest.approx(20 / block.took_s)
    assert (block.cached, block.speed, block.server_cpu_s) == (0.0, None, None)
    assert 0.0 <= block.steal <= 1.0
    assert block.context == {"preempted": 0.0}


def test_tokens_the_server_does_not_count_are_a_fault(server: CountingServer) -> None:
    def generating() -> list[int]:
        server.generated += 3
        return []

    with metrics(server.endpoint) as server_metrics:
        assert server_metrics
        measured_server = MeasuredServer(server.endpoint, server_metrics, processes=generating)
        (block,) = driver().blocks(measured_server, "seed", 1)
    assert block.faults == ("the server's count of tokens differs from the received tokens",)


def test_requests_that_fail_are_a_fault() -> None:
    gone = CountingServer()
    endpoint = gone.endpoint
    gone.server_close()
    (block,) = driver().blocks(MeasuredServer(endpoint, None), "seed", 1)
    assert block.faults[0].startswith("requests failed: ")


def test_each_block_has_the_machines_speed(server: CountingServer) -> None:
    speeds = iter([1.0, 3.0, 5.0])
    measured_server = MeasuredServer(server.endpoint, None)
    blocks = [*driver(speed=lambda: next(speeds)).blocks(measured_server, "seed", 2)]
    assert [block.speed for block in blocks] == [2.0, 4.0]


def test_groups_send_both_servers_the_same_requests_once(server: CountingServer) -> None:
    ours, theirs = (MeasuredServer(server.endpoint, None) for _ in range(2))
    groups = [*driver().groups(ours, theirs, "seed", 6)]
    names = [[block.name for block in group.ours] for group in groups]
    assert names == [[block.name for block in group.theirs] for group in groups] or all(
        {block.name for block in group.ours} == {block.name for block in group.theirs}
        for group in groups
    )
    assert len({name for pair in names for name in pair}) == 12
    first = ["ours" if g.ours[0].at_s < g.theirs[0].at_s else "theirs" for g in groups]
    assert first.count("ours") == first.count("theirs") == 3


def test_prompts_of_different_blocks_differ(server: CountingServer) -> None:
    block_driver = driver()
    requests, again, another = (
        block_driver._maker(server.endpoint, name).make(name, [None] * 4).planned
        for name in ("a", "a", "b")
    )
    assert [request.body for request in requests] == [request.body for request in again]
    assert {request.body for request in requests}.isdisjoint(request.body for request in another)


def test_machine_speed_is_positive() -> None:
    assert work(0.01) > 0
    with Yardstick() as yardstick:
        assert yardstick.speed() > 0
