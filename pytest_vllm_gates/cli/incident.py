"""`vllm-gates incident from FILE`: makes an incident of requests from a log or a command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.cli import capture
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.importers import TEXT_BYTES, curl, har, openai_log, vllm_log
from pytest_vllm_gates.incidents.types import ServedLane
from pytest_vllm_gates.redaction import redactor as redaction_redactor

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

KINDS: dict[str, ModuleType] = {
    "curl": curl, "openai-log": openai_log, "har": har, "vllm-log": vllm_log,
}  # fmt: skip
MOST_REQUESTS = 2000


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Give the command its arguments."""
    summary = "make an incident of a request that was seen elsewhere"
    parser = commands.add_parser("incident", help=summary, description=summary)
    parser.add_argument("what", choices=("from",))
    parser.add_argument("file", metavar="FILE", help="or - for the standard input")
    parser.add_argument("--kind", choices=tuple(KINDS), help="what FILE is; found out if it can be")
    parser.add_argument(
        "--number", type=int, metavar="N", help="the N-th request of FILE alone; default: all"
    )
    capture.declare_incident_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the incident; print where answers are not as expected, without failing."""
    text, folder = _text(options.file)
    kind = options.kind or _kind(text)
    imported = KINDS[kind].requests(text, folder)
    if not imported:
        raise UserError(f"{options.file}: no request to a model is in it, as {kind} has them")
    if len(imported) > MOST_REQUESTS and options.number is None:
        raise UserError(f"{options.file} has {len(imported)} requests: choose one with --number")
    if options.number is not None:
        if not 1 <= options.number <= len(imported):
            raise UserError(
                f"--number {options.number}: {options.file} has {len(imported)} requests"
            )
        imported = [imported[options.number - 1]]
    options.slug = kind
    lane = ServedLane(
        name="elsewhere", title=f"seen in {kind}", form="base_url", env={}, serve={}, overlay=()
    )
    redactor = redaction_redactor.of_process(os.environ)
    redactor.learn_text(text)
    path, wrong = capture.write(options, imported, lane, redactor=redactor)
    print(f"{len(imported)} request{'s' if len(imported) > 1 else ''} ({kind})")
    for message in wrong:
        print(f"  {message}")
    print(f"{path}\nsend it: pytest --repro {path}")
    return 0


def _text(name: str) -> tuple[str, Path]:
    """Return the text of FILE, and the folder whose files a command in it may name."""
    try:
        if name == "-":
            data, folder = sys.stdin.buffer.read(TEXT_BYTES + 1), Path.cwd()
        else:
            path = Path(name)
            data, folder = bounded_read.data(path, TEXT_BYTES), path.absolute().parent
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from error
    if len(data) > TEXT_BYTES:
        raise UserError(f"{name} has more than {TEXT_BYTES} bytes: cut out what matters")
    try:
        return data.decode("utf-8-sig"), folder
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is no text in UTF-8: {error}") from error


def _kind(text: str) -> str:
    kinds = [name for name, module in KINDS.items() if module.claims(text)]
    if len(kinds) != 1:
        reason = f"may be {' or '.join(kinds)}" if kinds else "is none that is known here"
        raise UserError(
            f"what this is cannot be told: it {reason}; say it: --kind {'|'.join(KINDS)}"
        )
    return kinds[0]
