"""`vllm-gates incident from FILE`: an incident of what was seen elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

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
    text = "make an incident of a request that was seen elsewhere"
    parser = commands.add_parser("incident", help=text, description=text)
    parser.add_argument("what", choices=("from",))
    parser.add_argument("file", metavar="FILE", help="or - for the standard input")
    parser.add_argument("--kind", choices=tuple(KINDS), help="what FILE is; found out if it can be")
    parser.add_argument(
        "--number", type=int, metavar="N", help="the N-th request of FILE alone; default: all"
    )
    capture.declare_incident_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the incident; what an answer in it is not as expected is told, and is no failure."""
    text, folder = _text(options.file)
    kind = options.kind or _kind(text)
    found = KINDS[kind].requests(text, folder)
    if not found:
        raise UserError(f"{options.file}: no request to a model is in it, as {kind} has them")
    if len(found) > MOST_REQUESTS and options.number is None:
        raise UserError(f"{options.file} has {len(found)} requests: choose one with --number")
    if options.number is not None:
        if not 1 <= options.number <= len(found):
            raise UserError(f"--number {options.number}: {options.file} has {len(found)} requests")
        found = [found[options.number - 1]]
    options.slug = kind
    lane = ServedLane(
        name="elsewhere", title=f"seen in {kind}", form="base_url", env={}, serve={}, overlay=()
    )
    redactor = redaction_redactor.of_process(os.environ)
    redactor.learn_text(text)
    path, wrong = capture.write(options, found, lane, redactor=redactor)
    print(f"{len(found)} request{'s' if len(found) > 1 else ''} ({kind})")
    for told in wrong:
        print(f"  {told}")
    print(f"{path}\nsend it: pytest --repro {path}")
    return 0


def _text(name: str) -> tuple[str, Path]:
    """Return what FILE holds, and the folder a command in it may name files of."""
    try:
        if name == "-":
            data, folder = sys.stdin.buffer.read(TEXT_BYTES + 1), Path.cwd()
        else:
            path = Path(name)
            if path.stat().st_size > TEXT_BYTES:
                raise UserError(f"{name} has more than {TEXT_BYTES} bytes: cut out what matters")
            data, folder = path.read_bytes(), path.absolute().parent
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
        what = f"may be {' or '.join(kinds)}" if kinds else "is none that is known here"
        raise UserError(f"what this is cannot be told: it {what}; say it: --kind {'|'.join(KINDS)}")
    return kinds[0]
