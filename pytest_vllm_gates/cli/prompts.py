"""`vllm-gates prompts`: shows a checkpoint's prompts, and the changes of another revision."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import flags, project as projects
from pytest_vllm_gates.checkpoints import named
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.prompts import revision
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "print what a checkpoint's template writes, and how another revision differs"
    parser = commands.add_parser("prompts", help=summary, description=summary)
    parser.add_argument("checkpoint", help="a folder with the tokenizer's files, or a Hub id")
    parser.add_argument(
        "--against", metavar="OLDER", help="the folder or the id of another revision"
    )
    parser.add_argument("--model", help="the family; default: found from the checkpoint")
    parser.add_argument("--lane", help="the lane whose [serve] applies; default: as for pytest")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what the template writes, or the changes; 1 if there are changes."""
    project = projects.current()
    lane, _ = named.lane(options.lane, project, machine_inspect.inspect())
    family, new = _found(options.model, options.checkpoint, lane, project)
    if family.prompt.encoder:
        raise UserError(
            f"{family.name} has no template: vLLM's {family.prompt.encoder} writes its prompts; "
            f"judge it with: pytest --model {family.name} -m chat_template"
        )
    read = _read(family, new, lane, project)
    if options.against is None:
        print(f"{new.source}: {family.title}")
        for line in revision.described(read, family):
            print(line)
        return 0
    _, old = _found(family.name, options.against, lane, project)
    changed = revision.changes(_read(family, old, lane, project), read, family)
    print(f"{new.source} against {old.source}: {family.title}")
    for line in changed or ["every prompt is the same"]:
        print(line)
    return 1 if changed else 0


def _found(model: str | None, source: str, lane: Lane, project: Path) -> tuple[Family, Checkpoint]:
    """Return the family of a checkpoint and the checkpoint; raises `UserError` for neither."""
    family, checkpoint, _ = named.served(model or source, source if model else None, lane, project)
    return family, checkpoint


def _read(family: Family, checkpoint: Checkpoint, lane: Lane, project: Path) -> revision.Revision:
    reference = ReferenceRenderer(checkpoint, flags.serving(family, checkpoint, lane))
    with contextlib.closing(reference):
        return revision.read(family, reference, project)
