"""`vllm-gates allreduce`: tests the communication of a lane's ranks, and measures its speed.

The ranks run under torchrun in the lane's interpreter, with the lane's environment and overlay, as
before every boot on more than one rank. If the lane's `[serve]` names several machines (`nnodes`,
`node_rank`, `master_addr`, `master_port`), run this on each machine at the same time.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.all_reduce import run as all_reduce_run
from pytest_vllm_gates.all_reduce.checks import failure, fault
from pytest_vllm_gates.all_reduce.types import backend, load, nodes as lane_nodes, rank_count
from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.checkpoints import named
from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.report import checks as report
from pytest_vllm_gates.server import log

if TYPE_CHECKING:
    import argparse

    from pytest_vllm_gates.all_reduce.types import Ranks
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.server.failure import Explanation


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "test the communication between the ranks of a lane, and measure its speed"
    parser = commands.add_parser("allreduce", help=summary, description=summary)
    parser.add_argument("--lane", help="default: cuda if an NVIDIA GPU answers, else cpu")
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="total number of ranks; default: the lane's number"
    )
    parser.add_argument(
        "--stall-timeout",
        type=float,
        metavar="S",
        help="seconds without a step that count as a hang",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the test and print its result; 1 if it fails."""
    machine = machine_inspect.inspect()
    lane, _ = named.lane(options.lane, projects.current(), machine)
    nodes = lane_nodes(lane.serve)
    world = options.ranks or rank_count(lane.serve)
    if world < 2 or world % nodes.count:  # noqa: PLR2004 - of one there is nothing to sum
        raise UserError(
            f"lane {lane.name}: cannot divide {world} ranks over {nodes.count} machines\n"
            f"try: vllm-gates allreduce --lane {lane.name} --ranks {2 * nodes.count}"
        )
    lane_environment = environment.prepare(lane, cache=files.default_cache(), progress=_say)
    if lane_environment.python is None:
        raise UserError(
            f"lane {lane.name}: its {lane.form} starts the ranks elsewhere, out of reach"
            "\nrun this there, from a lane that names the interpreter: python = …"
        )
    plan = load()
    folder = Path(tempfile.mkdtemp(prefix="all-reduce-"))
    ranks = all_reduce_run.run(
        all_reduce_run.Task(
            lane=lane,
            python=lane_environment.python,
            overlay=lane.overlay_path,
            env={},
            backend=backend(gather.of(lane_environment).device),
            world=world,
            nodes=nodes,
            folder=folder,
            plan=plan.within(plan.limit_s, options.stall_timeout or plan.stall_s),
        ),
        _say,
    )
    if options.json:
        print(json.dumps(report.all_reduce_document(ranks), indent=2, ensure_ascii=False))
    elif fault(ranks):
        print(failure(ranks, _explanation(ranks), _next(lane)).explain())
    else:
        print(f"all-reduce on lane {lane.name}: right")
        print("\n".join(report.all_reduce_lines(ranks)))
    return 1 if fault(ranks) else 0


def _explanation(ranks: Ranks) -> Explanation:
    classes = signature.load_all(projects.current())
    return explain.explain(log.blocks(ranks.log), classes, ranks.status, None)


def _next(lane: Lane) -> str:
    return f"to log the ranks' transport, set NCCL_DEBUG=INFO in [env] of {lane.file}"


def _say(message: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)
