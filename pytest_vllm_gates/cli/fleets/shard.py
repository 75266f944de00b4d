"""`vllm-gates shard`: runs one shard of a fleet's plan."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from pytest_vllm_gates import __version__
from pytest_vllm_gates.bisection import gates_run
from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fleet import pushed, reports, shards
from pytest_vllm_gates.fleet.engines.form import REPORTS
from pytest_vllm_gates.gates_store.fetch import without_login
from pytest_vllm_gates.gates_store.generations import VERDICTS
from pytest_vllm_gates.report.progress import Progress

SUMMARY = """run shards of a plan that `vllm-gates matrix` wrote; exits with 0 if each has a
verdict, whichever it is: `vllm-gates merge` decides"""
NO_VERDICT = 3
"""pytest's exit status for an internal error."""
NOT_PUSHED = 2
"""The exit status of every error of a command."""


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser("shard", help=SUMMARY, description=SUMMARY)
    parser.add_argument("plan", type=Path, metavar="PLAN", help=f"the plan's file ({shards.FILE})")
    parser.add_argument("names", nargs="+", metavar="SHARD", help="names, or numbers from 0")
    parser.add_argument(
        "--reports", type=Path, default=Path(REPORTS), metavar="DIR",
        help=f"the parent of the reports' folders, each with its shard's name (default {REPORTS})",
    )  # fmt: skip
    parser.add_argument(
        "--store", metavar="STORE",
        help="also push each report to this store; `vllm-gates merge STORE` reads it",
    )  # fmt: skip
    parser.add_argument(
        "--part", type=_part, metavar="K/N",
        help="run only on this part of the processor's cores: 1/2 for the first half; otherwise "
        "servers side by side share the first cores",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the shards one after the other; returns the first status without a verdict."""
    plan = shards.read(options.plan)
    chosen = [plan.shard(name) for name in options.names]
    if plan.suite != __version__:
        raise UserError(
            f"{options.plan}: version {plan.suite} of pytest-vllm-gates planned it, and this is "
            f"{__version__}\ninstall version {plan.suite}, or plan again: vllm-gates matrix"
        )
    if options.part:
        _keep_to(*options.part)
    status = 0
    for shard in chosen:
        folder = options.reports.absolute() / shard.name
        ended = _run(plan, shard, folder)
        if options.store and not ended:
            ended = _push(options.store, plan, shard, folder)
        status = status or ended
    return status


def _push(store: str, plan: shards.FleetPlan, shard: shards.Shard, folder: Path) -> int:
    """Push a report; on failure print the command to push it later, and continue."""
    try:
        print(f"{shard.name}: pushed to {pushed.push(store, plan, shard, folder)}")
    except UserError as error:
        print(
            f"{shard.name}: not pushed: {error}\n"
            f"its report is in {folder}; push it: vllm-gates store push {without_login(store)} "
            f"{VERDICTS} {shlex.quote(str(folder))} --name {pushed.name_of(plan, shard)}",
            file=sys.stderr,
        )
        return NOT_PUSHED
    return 0


def _run(plan: shards.FleetPlan, shard: shards.Shard, folder: Path) -> int:
    reports.begin(folder, plan, shard)
    status, document = gates_run.run(
        shard.arguments,
        project=projects.current(),
        folder=folder,
        say=Progress(_write, terminal=sys.stderr.isatty()),
        name=shard.name,
    )
    if document is None:
        print(
            f"{shard.name}: no verdict: pytest ended with {status}; see {folder / gates_run.LOG}",
            file=sys.stderr,
        )
        return status or NO_VERDICT
    print(f"{shard.name}: its verdict is in {folder}")
    return 0


def _write(text: str) -> None:
    sys.stderr.write(text)


def _part(value: str) -> tuple[int, int]:
    number, slash, count = value.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected a part like 1/2 or 2/2, got {value}")
    return int(number), int(count)


def _keep_to(number: int, count: int) -> None:
    """Bind this process and its children to a part of its cores."""
    if not hasattr(os, "sched_setaffinity"):
        raise UserError("--part: this system cannot bind a process to cores: leave it out")
    cores = sorted(os.sched_getaffinity(0))
    own = cores[(number - 1) * len(cores) // count : number * len(cores) // count]
    if not own:
        raise UserError(
            f"--part {number}/{count}: {len(cores)} cores are too few for {count} parts"
        )
    os.sched_setaffinity(0, own)
