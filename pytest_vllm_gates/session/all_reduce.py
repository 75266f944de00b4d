"""Tries an all-reduce between the ranks of a lane before the boot of a server with several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.all_reduce.types import ELSEWHERE, Nodes, backend, load, nodes, rank_count
from pytest_vllm_gates.report import checks as report
from pytest_vllm_gates.session.explain import explainer
from pytest_vllm_gates.session.run import AllReduceResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.preflight.types import Situation
    from pytest_vllm_gates.server.launch import LaunchPlan
    from pytest_vllm_gates.session.run import Run

FOLDER = "all_reduce"


def before(
    run: Run, plan: LaunchPlan, situation: Situation, progress: Callable[[str], None]
) -> AllReduceResult | None:
    """Return the result of the all-reduce before a boot, tried once a run; None for one rank."""
    world = rank_count(situation.serve)
    if world == 1:
        return None
    if world not in run.all_reduced:
        run.all_reduced[world] = _try(run, plan, situation, world, progress)
    return run.all_reduced[world]


def _try(
    run: Run, plan: LaunchPlan, situation: Situation, world: int, progress: Callable[[str], None]
) -> AllReduceResult:
    from pytest_vllm_gates.all_reduce import run as all_reduce_run  # noqa: PLC0415
    from pytest_vllm_gates.all_reduce.checks import failure  # noqa: PLC0415

    lane, options = plan.lane, run.options
    command = f"vllm-gates allreduce --lane {lane.name} --ranks {world}"
    if plan.python is None:
        return AllReduceResult(
            report.all_reduce_not_run("the ranks run inside what the lane's command starts")
        )
    if (executor := situation.serve.get("distributed_executor_backend")) in ELSEWHERE:
        return AllReduceResult(report.all_reduce_not_run(f"{executor} places the ranks"))
    if (count := nodes(situation.serve).count) > 1:
        reason = f"the ranks are on {count} machines; on each of them, at the same time: {command}"
        return AllReduceResult(report.all_reduce_not_run(reason))
    limits = load()
    ranks = all_reduce_run.run(
        all_reduce_run.Task(
            lane=lane,
            python=plan.python,
            overlay=plan.overlay,
            env=plan.env,
            backend=backend(situation.bundle.device),
            world=world,
            nodes=Nodes(),
            folder=plan.folder.parent / FOLDER,
            plan=limits.within(options.boot_timeout_s, options.stall_timeout_s),
        ),
        progress,
    )
    document = report.all_reduce_document(ranks)
    if not document["why"]:
        run.notes.append(report.all_reduce_line(ranks))
        return AllReduceResult(document)
    explanation = explainer(options.rootdir, situation)(ranks.log, ranks.status)
    return AllReduceResult(document, failure(ranks, explanation, command))
