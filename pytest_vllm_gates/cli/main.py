"""`vllm-gates`: the commands besides pytest, most of which do not boot a server.

Each command is a module. Its `declare` adds its arguments; its `run` gets them and returns the exit
status: 0 for success, 1 if something cannot work, 2 for invalid input. If the reader of the output
ends (`| head`), it is 141 as for any command. If the output cannot be written (on a full disk, for
example), it is 1, with the reason on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, TextIO, cast

from pytest_vllm_gates import __version__
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.redaction import redactor as redaction_redactor
from pytest_vllm_gates.redaction.stream import CleanText, NobodyReadsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROG = "vllm-gates"
NOBODY_READS = 128 + signal.SIGPIPE
COMMANDS: tuple[str, ...] = (
    "lane", "inventory", "preflight", "allreduce", "backends", "plan", "prompts", "explain",
    "signatures", "report", "history", "servers", "capture", "incident", "shrink", "bisect",
    "atlas", "shadow", "warmup", "fleets.matrix", "fleets.shard", "fleets.merge",
    "fleets.store",
)  # fmt: skip


class OutputError(Exception):
    """A command's output cannot be written."""


class Output:
    """A text file whose errors differ from the command's; without a file, text is dropped.

    `needed` is false for messages: a command continues if its messages cannot be written.
    """

    def __init__(self, file: TextIO | None, *, needed: bool) -> None:
        self._file = file
        self._needed = needed

    def write(self, text: str) -> int:
        """Write a text. Raises `OutputError`, `BrokenPipeError` for a pipe without a reader."""
        self._try(lambda file: file.write(text))
        return len(text)

    def flush(self) -> None:
        """Write the buffer; raises as `write` does."""
        self._try(lambda file: file.flush())

    def isatty(self) -> bool:
        """Return whether a person reads it."""
        return self._file is not None and self._file.isatty()

    def _try(self, action: Callable[[TextIO], object]) -> None:
        if self._file is None:
            return
        try:
            action(self._file)
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:  # ValueError: the file was closed
            file, self._file = self._file, None
            _discard(file)
            if self._needed:
                raise OutputError(getattr(error, "strerror", None) or str(error)) from error


def _discard(file: TextIO) -> None:
    """Drop the rest of a file's buffer, which Python would write when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)
        file.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status. Its output contains no secrets."""
    words = sys.argv[1:] if arguments is None else arguments
    redactor = redaction_redactor.of_process(os.environ, words)
    # Python has None for a stream that was closed before its start.
    out_file: TextIO | None = sys.stdout
    output, messages = Output(out_file, needed=True), Output(sys.stderr, needed=False)
    try:
        with (
            contextlib.closing(CleanText(cast("TextIO", output), redactor)) as out,
            contextlib.closing(CleanText(cast("TextIO", messages), redactor)) as err,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            return _main(words)
    except NobodyReadsError:
        if out_file:
            _discard(out_file)
        return NOBODY_READS
    except OutputError as error:
        messages.write(f"error: the output could not be written: {error}\n")
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    top_parser = argparse.ArgumentParser(prog=PROG, description=(__doc__ or "").partition("\n")[0])
    top_parser.add_argument("--version", action="version", version=f"{PROG} {__version__}")
    commands = top_parser.add_subparsers(metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"pytest_vllm_gates.cli.{name}").declare(commands)
    return top_parser


def _main(arguments: Sequence[str]) -> int:
    commands = parser()
    options = commands.parse_args(arguments)
    if "run" not in options:
        commands.print_help()
        return 0
    try:
        return int(options.run(options))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (NobodyReadsError, OutputError):
        raise
    except Exception:  # noqa: BLE001 - Python would tell it where secrets are told, too
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
