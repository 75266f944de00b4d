"""`vllm-gates explain`: finds the cause of a failure in a server's log, and its fix."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes, project as projects
from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.preflight.types import Situation
from pytest_vllm_gates.server import log

if TYPE_CHECKING:
    import argparse

DESCRIPTION = """what failed, why, and what to do next, from a log of any origin: a file, or -
for what is piped in (docker logs, kubectl logs, journalctl). Exits with 0 where the failure has a
name or the log says nothing wrong, with 1 where something failed that no signature knows."""


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Give the command its arguments."""
    parser = commands.add_parser(
        "explain", help="what a server's log says went wrong", description=DESCRIPTION
    )
    parser.add_argument("log", metavar="LOG", help="a file, or - for the standard input")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--exit-status", type=int, metavar="N", help="what the server ended with, -9 or 137"
    )
    parser.add_argument(
        "--here", action="store_true", help="it ran on this machine, whose facts are to be heard"
    )
    parser.add_argument("--lane", help="it ran on this machine, from this lane")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what the log says; 1 where it is an error that no signature knows."""
    project = projects.current()
    path = Path(options.log)
    classes = signature.load_all(project)
    situation = _situation(options.lane, project) if options.here or options.lane else None
    try:
        explanation = explain.explain(log.blocks(path), classes, options.exit_status, situation)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if options.json:
        print(json.dumps(explanation.document(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(explanation.lines()))
    return 1 if explanation.unknown or explanation.untold else 0


def _situation(lane: str | None, project: Path) -> Situation:
    """Return what is known of this machine, and of the lane where one is named."""
    known = Situation(
        lane=lane or "",
        machine=machine_inspect.inspect(),
        model=Model(""),
        environment=dict(os.environ),
    )
    if lane is None:
        return known
    made = lanes.load(lane, project)
    bundle = gather.of(environment.at_hand(made, cache=files.default_cache()))
    return Situation(
        lane=made.name,
        machine=known.machine,
        model=known.model,
        bundle=bundle,
        serve=made.serve,
        environment={**os.environ, **made.env},
    )
