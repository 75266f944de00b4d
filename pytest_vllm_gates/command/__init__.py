"""`vllm-gates`: what the gates know before anything boots, as commands of their own.

One module a command. Each has `declare`, which gives it its arguments, and `run`, which is called
with them and returns the exit status: 0 where all is well, 1 where something cannot work, 2 where
what was given makes no sense.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pytest_vllm_gates.facts.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROG = "vllm-gates"
COMMANDS: tuple[str, ...] = (
    "lane", "inventory", "preflight", "allreduce", "plan", "explain", "signatures",
    "history",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    parser = argparse.ArgumentParser(prog=PROG, description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"{__name__}.{name}").declare(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
