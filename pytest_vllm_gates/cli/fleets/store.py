"""`vllm-gates store`: pushes and pulls a team's shared files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_vllm_gates.bounded import limits
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.gates_store import generations
from pytest_vllm_gates.gates_store.objects import Objects
from pytest_vllm_gates.gates_store.schemes import SCHEMES

SUMMARY = """push goldens, incidents, histories and verdicts to a store that a team shares, and pull
them: a folder, S3 and compatible stores, Google's or Azure's storage, or HTTP"""
URL = f"a folder, or a URL that begins with {', '.join(SCHEMES)}"


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser("store", help=SUMMARY, description=SUMMARY)
    actions = parser.add_subparsers(dest="action", required=True)
    push = _action(actions, "push", "add a file or folder as the next generation of a name")
    push.add_argument("path", type=Path, metavar="PATH", help="the file or folder to push")
    push.set_defaults(run=run_push)
    pull = _action(actions, "pull", "write a generation into a new folder")
    pull.add_argument("into", type=Path, metavar="DIR", help="a folder that does not exist yet")
    pull.add_argument(
        "--number", type=_number, metavar="N", help="the generation; default: the last one"
    )
    pull.set_defaults(run=run_pull)
    listing = _action(actions, "list", "print the generations of a name")
    listing.set_defaults(run=run_list)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=summary, description=summary)
    parser.add_argument("store", metavar="STORE", help=URL)
    parser.add_argument("kind", choices=generations.KINDS, help="the kind of shared files")
    parser.add_argument(
        "--name",
        default=generations.MAIN,
        help=f"the name within its kind (default {generations.MAIN})",
    )
    return parser


def run_push(options: argparse.Namespace) -> int:
    """Push, and print the generation."""
    shelf = _shelf(options)
    record, is_new = shelf.push(options.path)
    size = limits.amount(record.bytes)
    print(
        f"{shelf}: generation {record.number}, {size}"
        if is_new
        else f"{shelf}: unchanged since generation {record.number}"
    )
    return 0


def run_pull(options: argparse.Namespace) -> int:
    """Pull into a folder that appears whole or not at all."""
    shelf = _shelf(options)
    number = options.number or shelf.count()
    if not number:
        raise UserError(
            f"{shelf}: nothing was pushed there yet\npush first: vllm-gates store push --help"
        )
    into: Path = options.into
    if into.exists():
        raise UserError(f"{into} already exists\nname a new folder, and compare: diff -r")
    record = shelf.generation(number)
    shelf.unpack_whole(record, into)
    print(f"{shelf}: generation {number} of {record.created} is in {into}")
    return 0


def run_list(options: argparse.Namespace) -> int:
    """Print a line for each generation."""
    shelf = _shelf(options)
    count = 0
    for record in shelf.all():
        count += 1
        size = limits.amount(record.bytes)
        print(f"{record.number:6}  {record.created}  {size:>9}  {record.sha256[:12]}")
    print(f"{shelf}: {count} generations", file=sys.stderr)
    return 0


def _shelf(options: argparse.Namespace) -> generations.Shelf:
    return generations.Shelf(Objects(options.store), options.kind, options.name)


def _number(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {value}")
    return number
