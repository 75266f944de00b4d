"""NCCL's code, MTUs and Ray's limit, each missing and each in place, on recorded Sparks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from machines import recorded
from situations import CPU, LANE, check

from pytest_vllm_gates.environment.types import Code, Library
from pytest_vllm_gates.preflight.types import CheckState, Node

SPARK = recorded("gb10", mtus={"enp1s0f1np1": 9000, "enP7s7": 1500})
TWO = {"nnodes": 2, "tensor_parallel_size": 2}


def nccl_of(*codes: Code) -> Library:
    return Library("/home/me/nccl/build/lib/libnccl.so.2", frozenset({frozenset(codes)}))


@pytest.mark.parametrize(
    ("codes", "state"),
    [
        ([Code(90), Code(100)], CheckState.FAILS),
        ([Code(120, suffix="a")], CheckState.FAILS),
        ([Code(121)], CheckState.OK),
        ([Code(120)], CheckState.OK),
        ([Code(90), Code(90, ptx=True)], CheckState.OK),
    ],
)
def test_nccl_needs_code_for_the_spark(codes: list[Code], state: CheckState) -> None:
    result = check("nccl", machine=SPARK, serve=TWO, nccl_library=nccl_of(*codes))
    assert result.state is state
    if state is CheckState.FAILS:
        assert "has no code for compute capability 12.1 (sm_121)" in result.what
        assert "arch=compute_121,code=sm_121" in result.fix


def test_nccl_is_checked_if_ranks_communicate() -> None:
    assert check("nccl", machine=SPARK).state is CheckState.NOT_APPLICABLE
    assert check("nccl", machine=SPARK, bundle=CPU).state is CheckState.NOT_APPLICABLE
    assert check("nccl", machine=SPARK, serve=TWO).what == (
        "nvidia/nccl/lib/libnccl.so.2 has code for every GPU"
    )
    without = replace(LANE, libraries=())
    assert check("nccl", machine=SPARK, serve=TWO, bundle=without).state is CheckState.UNKNOWN


def node(name: str, size: int, interface: str = "enp1s0f1np1") -> Node:
    environment = {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface}
    mtus = {interface: size, "enP7s7": 1500}
    return Node(name, {"mtus": mtus, "environment": environment}, {})


def mtu(*nodes: Node, **changes: Any) -> Any:
    return check("mtu", machine=SPARK, serve=TWO, nodes=nodes, **changes)


def test_interfaces_of_the_nodes_have_one_mtu() -> None:
    red = mtu(node("one", 9000), node("two", 1500, "enp1s0f0np0"))
    assert red.state is CheckState.FAILS
    assert "9000 of enp1s0f1np1 on one, 1500 of enp1s0f0np0 on two" in red.what
    assert "ping -M do -s 8972 ADDRESS" in red.fix
    same = mtu(node("one", 9000), node("two", 9000))
    assert same.state is CheckState.OK and "ping -M do -s 8972" in same.what
    named = {"NCCL_SOCKET_IFNAME": "enp1s0f1np1"}
    assert mtu(node("two", 1500), environment=named).state is CheckState.FAILS
    assert mtu(node("two", 9000), environment=named).state is CheckState.OK
    assert mtu(Node("old", {}, {}), Node("older", {}, {})).state is CheckState.UNKNOWN
    assert check("mtu", machine=SPARK).state is CheckState.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({}, CheckState.FAILS),
        ({"RAY_memory_usage_threshold": "0.9"}, CheckState.FAILS),
        ({"RAY_memory_usage_threshold": "no"}, CheckState.FAILS),
        ({"RAY_memory_usage_threshold": "0.99"}, CheckState.OK),
        ({"RAY_memory_monitor_refresh_ms": "0"}, CheckState.OK),
    ],
)
def test_ray_does_not_end_workers_for_the_gpus_share(
    environment: dict[str, str], state: CheckState
) -> None:
    by_ray = {"distributed_executor_backend": "ray"}
    result = check("ray_memory", machine=SPARK, serve=by_ray, environment=environment)
    assert result.state is state
    assert check("ray_memory", serve=by_ray).state is CheckState.NOT_APPLICABLE
    assert check("ray_memory", machine=SPARK).state is CheckState.NOT_APPLICABLE
    assert LANE.utilization
