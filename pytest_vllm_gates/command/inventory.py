"""`vllm-gates inventory`: what this machine is, and what a lane's environment brings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.drive import environment, machine, situation
from pytest_vllm_gates.facts import lane as lanes
from pytest_vllm_gates.report import inventory

if TYPE_CHECKING:
    import argparse


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Give the command its arguments."""
    text = "what this machine is: GPUs, driver, memory, limits"
    parser = commands.add_parser("inventory", help=text, description=text)
    parser.add_argument("--lane", help="and what this lane's environment brings")
    parser.add_argument("--json", action="store_true", help="as JSON, for `preflight --node`")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the inventory; there is nothing that could fail."""
    here = machine.inspect()
    bundle = None
    if options.lane:
        lane = lanes.load(options.lane, Path.cwd())
        bundle = situation.of(environment.at_hand(lane, cache=environment.default_cache()))
    if options.json:
        document: dict[str, Any] = {"machine": inventory.machine_document(here)}
        if bundle:
            document["lane"] = options.lane
            document["bundle"] = inventory.bundle_document(bundle)
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return 0
    for line in inventory.lines(here):
        print(line)
    for line in inventory.bundle_lines(options.lane, bundle) if bundle else ():
        print(line)
    return 0
