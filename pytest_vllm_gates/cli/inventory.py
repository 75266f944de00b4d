"""`vllm-gates inventory`: prints facts of this machine, and of a lane's environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes, project as projects
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.report import environment as report_environment

if TYPE_CHECKING:
    import argparse


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "print facts of this machine: GPUs, driver, memory, limits"
    parser = commands.add_parser("inventory", help=summary, description=summary)
    parser.add_argument("--lane", help="add facts of this lane's environment")
    parser.add_argument("--json", action="store_true", help="print JSON, for `preflight --node`")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the inventory; this cannot fail."""
    machine = machine_inspect.inspect()
    bundle = None
    if options.lane:
        lane = lanes.load(options.lane, projects.current())
        bundle = gather.of(environment.at_hand(lane, cache=files.default_cache()))
    if options.json:
        document: dict[str, Any] = {"machine": report_environment.machine_document(machine)}
        if bundle:
            document["lane"] = options.lane
            document["bundle"] = report_environment.bundle_document(bundle)
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return 0
    for line in report_environment.machine_lines(machine):
        print(line)
    for line in report_environment.bundle_lines(options.lane, bundle) if bundle else ():
        print(line)
    return 0
