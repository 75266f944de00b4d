"""`vllm-gates`: what the gates know before anything boots, as commands of their own.

One module a command. Each has `declare`, which gives it its arguments, and `run`, which is called
with them and returns the exit status: 0 where all is well, 1 where something cannot work, 2 where
what was given makes no sense. Where nobody reads on (`| head`), it is that of any command: 141.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.redaction import redactor as redaction_redactor
from pytest_vllm_gates.redaction.stream import CleanText, NobodyReadsError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROG = "vllm-gates"
NOBODY_READS = 128 + signal.SIGPIPE
COMMANDS: tuple[str, ...] = (
    "lane", "inventory", "preflight", "allreduce", "plan", "explain", "signatures",
    "report", "history", "servers", "capture", "incident", "shrink",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status. What it prints has no secrets in it."""
    words = sys.argv[1:] if arguments is None else arguments
    redactor = redaction_redactor.of_process(os.environ, words)
    try:
        with (
            contextlib.closing(CleanText(sys.stdout, redactor)) as out,
            contextlib.closing(CleanText(sys.stderr, redactor)) as err,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            return _main(words)
    except NobodyReadsError:
        # What is left to print would fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS


def parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    top_parser = argparse.ArgumentParser(prog=PROG, description=(__doc__ or "").partition("\n")[0])
    commands = top_parser.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"pytest_vllm_gates.cli.{name}").declare(commands)
    return top_parser


def _main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except NobodyReadsError:
        raise
    except Exception:  # noqa: BLE001 - Python would tell it where secrets are told, too
        traceback.print_exc()
        return 1
