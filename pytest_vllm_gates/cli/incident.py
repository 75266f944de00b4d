"""`vllm-gates incident from FILE`: makes an incident from requests of a log or a command."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from pytest_vllm_gates.cli import capture
from pytest_vllm_gates.incidents.importers import sources
from pytest_vllm_gates.incidents.types import ServedLane
from pytest_vllm_gates.redaction import redactor as redaction_redactor
from pytest_vllm_gates.report.incidents import counted

if TYPE_CHECKING:
    import argparse


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "make an incident from a request that was seen elsewhere"
    parser = commands.add_parser("incident", help=summary, description=summary)
    parser.add_argument("what", choices=("from",))
    parser.add_argument("file", metavar="FILE", help="the file, or - for the standard input")
    capture.declare_file_options(parser)
    capture.declare_incident_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the incident; print unmet expectations, without failing."""
    imported = sources.of_text(options.file, options.kind, options.number)
    options.slug = imported.kind
    lane = ServedLane(
        name="elsewhere", title=f"seen in {imported.kind}", form="base_url", env={}, serve={},
        overlay=(),
    )  # fmt: skip
    redactor = redaction_redactor.of_process(os.environ)
    redactor.learn_text(imported.text)
    written = capture.write(options, imported.sends, lane, redactor=redactor)
    print(f"{counted(len(imported.sends), 'request')} ({imported.kind})")
    for message in (*imported.notes, *written.notes, *written.wrong):
        print(f"  {message}")
    path = shlex.quote(str(written.path))
    print(f"{written.path}\nsend it: pytest --repro {path}")
    if all(sent.status is None and not sent.error for sent in imported.sends):
        print(
            "it has no recorded answer, so a replay can only check the expectations\n"
            f"to record one: vllm-gates capture --base-url URL --request {path}"
        )
    return 0
