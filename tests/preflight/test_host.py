"""How the nodes of a lane find each other."""

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


def network(**changes: Any) -> Check:
    defaults: dict[str, Any] = {"machine": SPARK, "serve": {"nnodes": 2}, "own_address": True}
    return check("network", **(defaults | changes))


@pytest.mark.parametrize("serve", [{}, {"nnodes": 1}, {"tensor_parallel_size": 8}])
def test_one_machine_needs_no_network(serve: dict[str, Any]) -> None:
    assert network(serve=serve).state is CheckState.NOT_APPLICABLE


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"serve": {"distributed_executor_backend": "ray"}},
        {"serve": {}, "nodes": (Node("two", {}, {}),)},
    ],
)
def test_named_interfaces_that_exist_are_ok(changes: dict[str, Any]) -> None:
    result = network(environment=NAMED, **changes)
    assert (result.state, result.what) == (
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
def test_nccl_interface_syntax_is_read(value: str, fits: bool) -> None:
    result = network(environment=NAMED | {"NCCL_SOCKET_IFNAME": value})
    assert result.state is (CheckState.OK if fits else CheckState.FAILS)
    if not fits:
        assert f"NCCL_SOCKET_IFNAME={value}: this machine has no interface" in result.what
        assert "enp1s0f0np0, enp1s0f1np1, wlP9s9" in result.fix


def test_gloo_needs_exact_interface_names() -> None:
    result = network(environment=NAMED | {"GLOO_SOCKET_IFNAME": "enp1s0"})
    assert "GLOO_SOCKET_IFNAME=enp1s0: this machine has no interface enp1s0" in result.what


def test_address_of_another_node_fails() -> None:
    result = network(environment=NAMED, own_address=False)
    assert result.what == "VLLM_HOST_IP=192.168.100.10 is not an address of this machine"


def test_missing_library_fails() -> None:
    result = network(environment=NAMED, missing_files={"VLLM_NCCL_SO_PATH": "/opt/libnccl.so.2"})
    assert result.what == "VLLM_NCCL_SO_PATH=/opt/libnccl.so.2 does not exist"


def test_unset_variables_leave_the_network_unknown() -> None:
    result = network(environment={"VLLM_HOST_IP": "192.168.100.10"})
    assert result.state is CheckState.UNKNOWN
    assert result.what.startswith("NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME not set")


def test_network_of_a_server_elsewhere_is_unknown() -> None:
    assert network(machine=None, environment=NAMED).state is CheckState.UNKNOWN
    assert network(own_limits=False, environment={"GLOO_SOCKET_IFNAME": "eth9"}).state is (
        CheckState.UNKNOWN
    )


def test_two_nodes_with_one_address_fail() -> None:
    def node(name: str, address: str) -> Node:
        return Node(name, {"environment": {"VLLM_HOST_IP": address}}, {"vllm": "0.32.0"})

    same_address = (node("one", "192.168.100.10"), node("two", "192.168.100.10"))
    result = check("nodes", machine=HOPPER, nodes=same_address)
    assert (
        result.what == "the nodes have the same address: VLLM_HOST_IP=192.168.100.10 on one and two"
    )
    own_addresses = (node("one", "192.168.100.10"), node("two", "192.168.100.11"))
    assert check("nodes", machine=HOPPER, nodes=own_addresses).state is CheckState.OK
