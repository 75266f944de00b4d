"""`vllm-gates merge`: makes one verdict from the reports of a plan's shards."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.files import write_together
from pytest_vllm_gates.fleet import grid, html, merged, pushed, reports, shards
from pytest_vllm_gates.gates_store.fetch import without_login

if TYPE_CHECKING:
    import argparse

    from pytest_vllm_gates.fleet.merged import FleetVerdict
    from pytest_vllm_gates.fleet.shards import FleetPlan

SUMMARY = """make one verdict from the shards' verdicts: PROMOTE (exit status 0), REJECT (1) or HOLD
(6); missing, doubled and foreign reports are listed"""
VERDICT, PAGE = "fleet-verdict.json", "fleet.md"


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser("merge", help=SUMMARY, description=SUMMARY)
    parser.add_argument(
        "sources", nargs="+", metavar="DIR|STORE",
        help="folders with the shards' reports, or the store they were pushed to",
    )  # fmt: skip
    parser.add_argument(
        "--plan", type=Path, default=Path(shards.FILE), metavar="FILE",
        help=f"the plan's file (default {shards.FILE})",
    )  # fmt: skip
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        help=f"write {VERDICT}, {PAGE} and {html.NAME} into this folder",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the verdict; the exit status is as for a run with --require-promotion."""
    plan = shards.read(options.plan)
    fleet = merged.merge(plan, reports.read(_folders(options, plan)))
    document = json.dumps(merged.document(plan, fleet), indent=1, ensure_ascii=False) + "\n"
    again = _again(options, fleet)
    if options.report:
        write_together(
            {
                options.report / VERDICT: document,
                options.report / PAGE: grid.page(plan, fleet, again, options.report),
                options.report / html.NAME: html.page(plan, fleet, again, options.report),
            }
        )
    print(document if options.json else grid.page(plan, fleet, again, Path()), end="")
    return fleet.verdict.exit_status(require_promotion=True)


def _folders(options: argparse.Namespace, plan: FleetPlan) -> list[Path]:
    """Return the folders to read; a store's reports are pulled next to the merged one."""
    return [
        pushed.pull(source, plan, options.report) if pushed.holds(source) else Path(source)
        for source in options.sources
    ]


def _again(options: argparse.Namespace, fleet: FleetVerdict) -> str:
    """Return the command that runs the missing shards."""
    if not fleet.missing:
        return ""
    names = [shard.name for shard in fleet.missing]
    words = ["vllm-gates", "shard", str(options.plan), *names]
    source = options.sources[0]
    # The page shows the command, and must not show a login.
    words += (
        ["--store", without_login(source) if "://" in source else source]
        if pushed.holds(source)
        else ["--reports", source]
    )
    return shlex.join(words)
