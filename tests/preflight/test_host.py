"""What the nodes of a lane find each other by."""

from __future__ import annotations

from typing import Any

import pytest
from machines import recorded
from situations import HOPPER, check

from pytest_vllm_gates.preflight.types import Check, CheckState, Node

# The names of a DGX Spark's: management, wireless, and both halves of its two QSFP ports.
INTERFACES = (
    "enP2p1s0f0np0", "enP2p1s0f1np1", "enP7s7", "enp1s0f0np0", "enp1s0f1np1", "lo", "wlP9s9",
)  # fmt: skip
SPARK = recorded("gb10", interfaces=INTERFACES)
NAMED = {
    "VLLM_HOST_IP": "192.168.100.10",
    "NCCL_SOCKET_IFNAME": "enp1s0f1np1",
    "GLOO_SOCKET_IFNAME": "enp1s0f1np1",
}


def network(**given: Any) -> Check:
    known: dict[str, Any] = {"machine": SPARK, "serve": {"nnodes": 2}, "own_address": True}
    return check("network", **(known | given))


@pytest.mark.parametrize("serve", [{}, {"nnodes": 1}, {"tensor_parallel_size": 8}])
def test_one_machine_needs_no_network(serve: dict[str, Any]) -> None:
    assert network(serve=serve).state is CheckState.NOT_APPLICABLE


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"serve": {"distributed_executor_backend": "ray"}},
        {"serve": {}, "nodes": (Node("two", {}, {}),)},
    ],
)
def test_several_nodes_are_well_where_all_that_is_named_is_here(given: dict[str, Any]) -> None:
    found = network(environment=NAMED, **given)
    assert (found.state, found.what) == (
        CheckState.OK,
        "VLLM_HOST_IP=192.168.100.10, NCCL_SOCKET_IFNAME=enp1s0f1np1, "
        "GLOO_SOCKET_IFNAME=enp1s0f1np1",
    )


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("enp1s0", True),  # the beginning of a name
        ("=enp1s0", False),
        ("=enp1s0f1np1", True),
        ("^docker,lo", True),
        ("enp1s0f1np1,enp1s0f0np0", True),
        ("enp1s0f1np1,eth0", False),
        ("ib0", False),
    ],
)
def test_nccls_own_spelling_of_interfaces_is_understood(value: str, fits: bool) -> None:
    found = network(environment=NAMED | {"NCCL_SOCKET_IFNAME": value})
    assert found.state is (CheckState.OK if fits else CheckState.FAILS)
    if not fits:
        assert f"NCCL_SOCKET_IFNAME={value}: this machine has no interface" in found.what
        assert "enp1s0f0np0, enp1s0f1np1, wlP9s9" in found.fix


def test_gloo_takes_whole_names_only() -> None:
    found = network(environment=NAMED | {"GLOO_SOCKET_IFNAME": "enp1s0"})
    assert "GLOO_SOCKET_IFNAME=enp1s0: this machine has no interface enp1s0" in found.what


def test_another_nodes_address_is_told() -> None:
    found = network(environment=NAMED, own_address=False)
    assert found.what == "VLLM_HOST_IP=192.168.100.10 is no address of this machine"


def test_a_library_that_is_not_there_is_told() -> None:
    found = network(environment=NAMED, missing_files={"VLLM_NCCL_SO_PATH": "/opt/libnccl.so.2"})
    assert found.what == "VLLM_NCCL_SO_PATH=/opt/libnccl.so.2 is not there"


def test_what_is_not_named_is_not_known_to_be_well() -> None:
    found = network(environment={"VLLM_HOST_IP": "192.168.100.10"})
    assert found.state is CheckState.UNKNOWN
    assert found.what.startswith("NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME not set")


def test_what_runs_elsewhere_is_not_judged_by_this_machine() -> None:
    assert network(machine=None, environment=NAMED).state is CheckState.UNKNOWN
    assert network(own_limits=False, environment={"GLOO_SOCKET_IFNAME": "eth9"}).state is (
        CheckState.UNKNOWN
    )


def test_two_nodes_of_one_address_are_told() -> None:
    def node(name: str, address: str) -> Node:
        return Node(name, {"environment": {"VLLM_HOST_IP": address}}, {"vllm": "0.32.0"})

    both = (node("one", "192.168.100.10"), node("two", "192.168.100.10"))
    found = check("nodes", machine=HOPPER, nodes=both)
    assert found.what == "the nodes have one address: VLLM_HOST_IP=192.168.100.10 on one and two"
    apart = (node("one", "192.168.100.10"), node("two", "192.168.100.11"))
    assert check("nodes", machine=HOPPER, nodes=apart).state is CheckState.OK
