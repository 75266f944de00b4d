"""`vllm-gates history`: prints the verdicts of a project's runs, and the trends of its figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.history import store as history_store
from pytest_vllm_gates.history.types import FILE, trends
from pytest_vllm_gates.report import history as report

RUNS = 20


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "print the verdicts of this project's runs, and the trends of its figures"
    parser = commands.add_parser("history", help=summary, description=summary)
    parser.add_argument("--model", metavar="NAME", help="only runs of this family")
    parser.add_argument(
        "--limit", type=_count, default=RUNS, metavar="N", help=f"the last N runs (default {RUNS})"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, whole")
    parser.add_argument(
        "--history", type=Path, metavar="PATH", help=f"the file (default {FILE} of the project)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the runs; a file that cannot be read is a `UserError`."""
    family, path = options.model, options.history or projects.current() / FILE
    if family is not None:
        family = choose("family in this history", family, history_store.families(path))
    runs = history_store.runs(path, options.limit, family)
    if options.json:
        print(json.dumps(report.document(runs), indent=2, ensure_ascii=False))
        return 0
    for line in report.lines(runs, trends(runs, family), family):
        print(line)
    return 0


def _count(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of runs, got {value}")
    return number
