"""`vllm-gates preflight`: checks whether a model can boot on a lane, without booting it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.checkpoints import named, resolve
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.machine import inspect as machine_inspect, recorded
from pytest_vllm_gates.preflight import checks as preflight_checks, gather
from pytest_vllm_gates.report import checks as report

if TYPE_CHECKING:
    import argparse

    from pytest_vllm_gates.catalog.family import Family


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Give the command its arguments."""
    summary = "whether a model can boot on a lane, without booting it"
    parser = commands.add_parser("preflight", help=summary, description=summary)
    parser.add_argument("--model", required=True, help="a family, a folder or a Hub id")
    parser.add_argument("--checkpoint", help="which of the family's, a folder, or a Hub id")
    parser.add_argument("--lane", help="default: cuda where an NVIDIA GPU answers, else cpu")
    parser.add_argument(
        "--check", action="append", metavar="NAME", help="this check alone (again for another)"
    )
    parser.add_argument(
        "--node", action="append", default=[], type=Path, metavar="FILE",
        help="another node of the lane: what `vllm-gates inventory --lane … --json` wrote there",
    )  # fmt: skip
    parser.add_argument(
        "--machine", type=Path, metavar="FILE",
        help="judge for another machine: its `vllm-gates inventory --json`, or its "
        "`nvidia-smi -q -x`",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the checks and print them; 1 where one fails."""
    project = projects.current()
    names = [
        choose("check", name, preflight_checks.CHECKS)
        for name in options.check or preflight_checks.CHECKS
    ]
    nodes = [gather.node(path) for path in options.node]
    machine = recorded.read(options.machine) if options.machine else machine_inspect.inspect()
    lane, _ = named.lane(options.lane, project, machine)
    family: Family | None
    try:
        family, checkpoint, _ = named.served(options.model, options.checkpoint, lane, project)
    except resolve.NoFamilyError:
        family, checkpoint = None, resolve.without_family(options.model)
    checks = preflight_checks.run(
        gather.gather(
            family,
            checkpoint,
            lane,
            environment.at_hand(lane, cache=files.default_cache()),
            machine,
            nodes=nodes,
            elsewhere=options.machine is not None,
        ),
        names,
    )
    if options.json:
        print(json.dumps(report.preflight_document(checks), indent=2, ensure_ascii=False))
    else:
        name = family.name if family else "no family"
        print(f"{name}, checkpoint {checkpoint.name}, on lane {lane.name}: {lane.title}")
        for line in report.preflight_lines(checks):
            print(line)
    return 1 if preflight_checks.failed(checks) else 0
