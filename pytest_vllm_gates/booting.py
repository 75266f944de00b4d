"""One boot of a run: a kept server that serves just this, or a new one once it is known to fit."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import ranks
from pytest_vllm_gates.drive import kept_servers, launch, machine, situation
from pytest_vllm_gates.explaining import explainer
from pytest_vllm_gates.facts.launch import Boot, Failure
from pytest_vllm_gates.judge import preflight
from pytest_vllm_gates.keeping import Keeping
from pytest_vllm_gates.report import preflight as preflight_report
from pytest_vllm_gates.report.inventory import bundle_document

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.drive.environment import Environment
    from pytest_vllm_gates.facts.preflight import Check, Situation
    from pytest_vllm_gates.run import Run, Subject

MEMORY_BACK_S = 5.0
MEMORY_POLL_S = 0.5
PREFLIGHT = "preflight"


def boot(
    run: Run,
    subject: Subject,
    plan: launch.Plan,
    environment: Environment,
    *,
    progress: Callable[[str], None],
    on_log: Callable[[str], None] | None,
) -> tuple[Boot, launch.Server | None]:
    """Boot a plan, or take a kept server of it; raises `UserError` where nothing can be tried.

    What is known beforehand to fail is not tried.
    """
    options = run.options
    kept = None
    if options.keep_server_s:
        kept = Keeping.of(
            plan, environment, options.keep_server_s, explainer(options.rootdir, None)
        )
        if found := kept.find():
            server, record = found
            run.inventory.update(record.inventory)
            return server.boot, server
    given, checks = _preflight(run, subject, environment, progress, renderer=plan.renderer)
    evidence: dict[str, Any] = {PREFLIGHT: preflight_report.document(checks)}
    failure = _cannot_boot(run, subject, checks)
    if not failure and not plan.renderer and (tried := ranks.before(run, plan, given, progress)):
        evidence["all_reduce"] = tried.document
        failure = tried.failure
    if failure:
        return Boot(failure=failure, evidence=evidence), None
    explain = explainer(options.rootdir, given)
    if kept:
        kept.explain = explain
        server = kept.boot(progress, on_log, evidence, run.inventory)
    else:
        server = launch.Server(plan, progress, on_log, explain)
        server.boot.evidence.update(evidence)
    return server.boot, server


def _preflight(
    run: Run,
    subject: Subject,
    environment: Environment,
    progress: Callable[[str], None],
    *,
    renderer: bool,
) -> tuple[Situation, tuple[Check, ...]]:
    """Return what is known of a boot before it, and what that comes to."""
    given = situation.gather(
        subject.family,
        subject.checkpoint,
        run.lane,
        environment,
        machine.inspect(),
        env=run.server_env,
        renderer=renderer,
    )
    run.inventory.update(bundle_document(given.bundle))
    checks = preflight.run(given)
    if preflight.only_memory_fails(checks):
        for ended in kept_servers.give_way():
            progress(f"{subject.family.name}: an idle kept server gave way: {ended}")
    started = time.monotonic()
    # The memory of the server before this one may be on its way back.
    while preflight.only_memory_fails(checks) and time.monotonic() - started < MEMORY_BACK_S:
        time.sleep(MEMORY_POLL_S)
        given = replace(given, machine=machine.inspect())
        checks = preflight.run(given)
    return given, checks


def _cannot_boot(run: Run, subject: Subject, checks: Sequence[Check]) -> Failure | None:
    """Return the failure of a boot that need not be tried; None where it may be."""
    if not preflight.failed(checks):
        return None
    return Failure(
        f"{subject.family.name} cannot boot on lane {run.lane.name}\n{preflight.explain(checks)}",
        hint=preflight_report.command(subject.family, subject.checkpoint, run.lane.name),
    )
