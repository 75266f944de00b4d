"""`vllm-gates signatures`: lists the known failures, class by class."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.diagnosis import signature
from pytest_vllm_gates.report import checks as report_checks

if TYPE_CHECKING:
    import argparse


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "list the failures that have a name, including the project's own"
    parser = commands.add_parser("signatures", help=summary, description=summary)
    parser.add_argument("--class", dest="name", metavar="NAME", help="only this class")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON, whole")
    form.add_argument(
        "--markdown",
        action="store_true",
        help="print the shipped ones in the form of docs/signatures.md",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the signatures; this cannot fail."""
    classes = signature.load_all(None if options.markdown else projects.current())
    if options.name:
        name = choose("class of signatures", options.name, [each.name for each in classes])
        classes = tuple(each for each in classes if each.name == name)
    if options.json:
        print(json.dumps(report_checks.signature_document(classes), indent=2, ensure_ascii=False))
    elif options.markdown:
        print(report_checks.signature_page(classes), end="")
    else:
        print("\n".join(report_checks.signature_lines(classes)))
    return 0
