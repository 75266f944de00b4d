"""`vllm-gates preflight`: checks whether a model can boot on a lane, without booting it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.checkpoints import named, resolve
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.lanes import changed_files
from pytest_vllm_gates.machine import inspect as machine_inspect, recorded
from pytest_vllm_gates.preflight import checks as preflight_checks, gather
from pytest_vllm_gates.report import checks as report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.machine.types import Machine
    from pytest_vllm_gates.preflight.types import Check, Node

OF_ONE_MODEL = ("checkpoint", "lane", "node", "machine", "json")
"""Options that do not apply to files."""


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "check whether a model can boot on a lane, without booting it"
    parser = commands.add_parser("preflight", help=summary, description=summary)
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE",
        help="files of lanes and families to check, for any machine; for use in a pre-commit hook",
    )  # fmt: skip
    parser.add_argument("--model", help="a family, a folder or a Hub id")
    parser.add_argument("--checkpoint", help="one of the family's, a folder, or a Hub id")
    parser.add_argument("--lane", help="default: cuda if an NVIDIA GPU answers, else cpu")
    parser.add_argument(
        "--check", action="append", metavar="NAME", help="only this check (may be repeated)"
    )
    parser.add_argument(
        "--node", action="append", default=[], type=Path, metavar="FILE",
        help="another node of the lane: its output of `vllm-gates inventory --lane NAME --json`",
    )  # fmt: skip
    parser.add_argument(
        "--machine", action="append", default=[], type=Path, metavar="FILE",
        help="check for another machine: its `vllm-gates inventory --json`, or its "
        "`nvidia-smi -q -x` (repeat it for each node)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the checks and print them; 1 if one fails."""
    project = projects.current()
    if bool(options.files) == bool(options.model):
        raise UserError(
            "name either --model, or files of lanes and families\n"
            "for example: vllm-gates preflight lanes/canary.toml"
        )
    names = [
        choose("check", name, preflight_checks.CHECKS)
        for name in options.check or preflight_checks.CHECKS
    ]
    if options.files:
        return _run_files(options, names)
    nodes = [gather.node(path) for path in options.node]
    if not options.machine:
        found = {"": _checks(options, project, names, nodes, machine_inspect.inspect())}
    else:
        found = {
            path.name: _checks(options, project, names, nodes, recorded.read(path))
            for path in options.machine
        }
    if options.json:
        documents = {name: report.preflight_document(each.checks) for name, each in found.items()}
        document: object = {"machines": documents}
        if len(documents) == 1:
            document = next(iter(documents.values()))
        print(json.dumps(document, indent=2, ensure_ascii=False))
    for number, (name, each) in enumerate(found.items()) if not options.json else ():
        if len(found) > 1:
            print(f"{chr(10) if number else ''}== {name}")
        print(each.headline)
        for line in report.preflight_lines(each.checks):
            print(line)
    return int(any(preflight_checks.failed(each.checks) for each in found.values()))


def _run_files(options: argparse.Namespace, names: Sequence[str]) -> int:
    """Print the failed checks of the lanes and families in these files; 1 if there are any."""
    for name in OF_ONE_MODEL:
        if getattr(options, name):
            raise UserError(f"--{name} needs --model, and files were named: leave one of them out")
    pairs = changed_files.concerned(options.files)
    failed = 0
    for pair in pairs:
        lane, family = pair.lane, pair.family
        served = named.served(family, None, lane, pair.project)
        situation = changed_files.situation(served[0], served[1], lane)
        checks = [
            check
            for check in preflight_checks.run(situation, names)
            if preflight_checks.failed([check])
        ]
        failed += bool(checks)
        for line in [*report.preflight_lines(checks)][:-1] if checks else ():  # no count
            print(f"{family} on lane {lane.name}: {line}")
    print(f"checked: {len(pairs)}, each a family on a lane; {failed} cannot boot")
    return int(bool(failed))


@dataclass(frozen=True)
class _Judged:
    """The checks' results for one machine."""

    headline: str
    checks: tuple[Check, ...]


def _checks(
    options: argparse.Namespace,
    project: Path,
    names: Sequence[str],
    nodes: Sequence[Node],
    machine: Machine,
) -> _Judged:
    lane, _ = named.lane(options.lane, project, machine)
    family: Family | None
    try:
        family, checkpoint, _ = named.served(options.model, options.checkpoint, lane, project)
    except resolve.NoFamilyError:
        family, checkpoint = None, resolve.without_family(options.model)
    at_hand = environment.at_hand(lane, cache=files.default_cache())
    elsewhere = bool(options.machine)
    situation = gather.gather(
        family, checkpoint, lane, at_hand, machine, nodes=nodes, elsewhere=elsewhere
    )
    name = family.name if family else "no family"
    return _Judged(
        f"{name}, checkpoint {checkpoint.name}, on lane {lane.name}: {lane.title}",
        preflight_checks.run(situation, names),
    )
