"""Boots a family's server for a run, or attaches to a running one."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import files
from pytest_vllm_gates.checkpoints import prompt_files
from pytest_vllm_gates.client import endpoint as endpoints
from pytest_vllm_gates.client.bounds import Bounds
from pytest_vllm_gates.client.tape import BOOT
from pytest_vllm_gates.environment import environment as environments
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import parts as incidents_parts
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.outcomes import Infrastructure
from pytest_vllm_gates.preflight import checks as preflight_checks, gather
from pytest_vllm_gates.process.process import GuardedProcess
from pytest_vllm_gates.report import checks as preflight_report
from pytest_vllm_gates.report.environment import bundle_document
from pytest_vllm_gates.server import attach as attaching, launch
from pytest_vllm_gates.server.kept import registry as kept_registry
from pytest_vllm_gates.server.patience import BootLimits
from pytest_vllm_gates.server.types import Boot, Failure
from pytest_vllm_gates.session import all_reduce, unwritten
from pytest_vllm_gates.session.explain import explainer
from pytest_vllm_gates.session.keep_server import ServerKeeping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.options.table import Options
    from pytest_vllm_gates.preflight.types import Check, Situation
    from pytest_vllm_gates.session.run import Run, Subject

MEMORY_BACK_S = 5.0
MEMORY_POLL_S = 0.5
PREFLIGHT = "preflight"
NEEDED_LATER = ("pytest_vllm_gates.conversations.walk", "pytest_vllm_gates.dialects.ask")
"""Modules of the conversation gates; their official clients take a second to import."""


def boot(
    run: Run,
    subject: Subject,
    folder: Path,
    progress: Callable[[str], None],
    on_log: Callable[[str], None] | None = None,
) -> tuple[Boot, launch.Server | None]:
    """Boot a family, or attach to a running server; a failure is returned, not raised.

    Raises `Infrastructure` if this machine prevents a server's start: for example, a full disk.
    """
    options, name = run.options, subject.family.name
    tape = run.tapes.get(name)
    with tape.part(BOOT) if tape else contextlib.nullcontext():
        if run.lane.base_url:
            endpoint = endpoints.of_lane(
                run.lane, os.environ, options.api_key_env, tape, bounds_of(options)
            )
            pools = subject.family.pooling is not None
            booted = attaching.attach(endpoint, options.stall_timeout_s, pools=pools)
            server = None
        else:
            try:
                environment = _environment(run, progress)
                planned = _plan(run, subject, environment, folder / name)
                booted, server = _served(
                    run, subject, planned, environment, progress=progress, on_log=on_log
                )
            except OSError as error:
                # A fault of this machine, its disk or its processes, not of what is served.
                reason = f"{error.strerror or error}: {error.filename}"
                raise Infrastructure(f"{name} could not be started: {reason}") from error
            except UserError as error:
                booted, server = Boot(failure=Failure(str(error), infrastructure=True)), None
            booted.evidence.setdefault(PREFLIGHT, [])
    run.boots[name] = booted
    if booted.endpoint and options.incidents:
        run.metrics[name] = incidents_parts.metrics(booted.endpoint)
    return booted, server


def plan(
    run: Run, subject: Subject, folder: Path, progress: Callable[[str], None]
) -> launch.LaunchPlan:
    """Return the plan of `boot`, for a caller that starts it in another way.

    Raises `UserError` if the lane's environment cannot be made.
    """
    environment = _environment(run, progress)
    return _plan(run, subject, environment, folder / subject.family.name)


def _environment(run: Run, progress: Callable[[str], None]) -> Environment:
    """Return the lane's environment, made first if it is missing.

    Raises `UserError` if it cannot be made.
    """
    if run.environment is None:
        run.environment = environments.prepare(
            run.lane, cache=files.default_cache(), progress=progress
        )
        run.versions.update(run.environment.versions)
    return run.environment


def _plan(run: Run, subject: Subject, environment: Environment, folder: Path) -> launch.LaunchPlan:
    """Return the plan of a family's server."""
    options = run.options
    renderer = run.renderer_is_enough(subject)
    return launch.LaunchPlan(
        family=subject.family,
        lane=run.lane,
        checkpoint=prompt_files.alone(subject.checkpoint) if renderer else subject.checkpoint,
        python=environment.python,
        overlay=run.overlay,
        env=run.server_env,
        redactor=run.redactor,
        renderer=renderer,
        folder=folder,
        limits=BootLimits(options.boot_timeout_s, options.stall_timeout_s),
        tape=run.tapes.get(subject.family.name),
        bounds=bounds_of(options),
    )


def bounds_of(options: Options) -> Bounds:
    """Return the limits of a server's answers that the options set."""
    return Bounds.of(options.max_response_mib, options.response_timeout_s)


def start_and_import(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> GuardedProcess:
    """Start a server, and import what the gates need after its boot, which takes longer.

    In this thread: a pytest within pytest restores the modules, which ends an import elsewhere.
    """
    process = GuardedProcess(argv, env=env, log=log)
    try:
        for name in NEEDED_LATER:
            with contextlib.suppress(ImportError):  # the gate that needs it reports it
                importlib.import_module(name)
        gc.freeze()  # modules stay: no later collection visits their objects again
    except BaseException:
        process.stop()
        raise
    return process


def _served(
    run: Run,
    subject: Subject,
    plan: launch.LaunchPlan,
    environment: Environment,
    *,
    progress: Callable[[str], None],
    on_log: Callable[[str], None] | None,
) -> tuple[Boot, launch.Server | None]:
    """Boot a plan, or take a kept server of it; raises `UserError` if nothing can be tried.

    A boot that is known to fail is not tried.
    """
    options = run.options
    keeping = None
    if options.keep_server_s:
        keeping = ServerKeeping.of(
            plan, environment, options.keep_server_s, explainer(options.rootdir, None)
        )
        if match := keeping.find():
            server, record = match
            run.inventory.update(record.inventory)
            _note_problem(run, keeping)
            return server.boot, server
    situation, checks = _preflight(run, subject, environment, progress, renderer=plan.renderer)
    evidence: dict[str, Any] = {PREFLIGHT: preflight_report.preflight_document(checks)}
    failure = _cannot_boot(run, subject, checks)
    if (
        not failure
        and not plan.renderer
        and (tried := all_reduce.before(run, plan, situation, progress))
    ):
        evidence["all_reduce"] = tried.document
        failure = tried.failure
    if failure:
        return Boot(failure=failure, evidence=evidence), None
    explain = explainer(options.rootdir, situation)
    if keeping:
        keeping.explain = explain
        server = keeping.boot(progress, on_log, evidence, run.inventory)
        _note_problem(run, keeping)
    else:
        server = launch.Server(plan, progress, on_log, explain, start=start_and_import)
        server.boot.evidence.update(evidence)
    return server.boot, server


def _note_problem(run: Run, keeping: ServerKeeping) -> None:
    if keeping.problem:
        unwritten.note(run, keeping.problem)


def _preflight(
    run: Run,
    subject: Subject,
    environment: Environment,
    progress: Callable[[str], None],
    *,
    renderer: bool,
) -> tuple[Situation, tuple[Check, ...]]:
    """Return the facts known before a boot, and the result of their checks."""
    situation = gather.gather(
        subject.family,
        subject.checkpoint,
        run.lane,
        environment,
        machine_inspect.inspect(),
        env=run.server_env,
        renderer=renderer,
    )
    run.inventory.update(bundle_document(situation.bundle))
    checks = preflight_checks.run(situation)
    if preflight_checks.only_memory_fails(checks):
        for ended in kept_registry.give_way():
            progress(f"{subject.family.name}: an idle kept server gave way: {ended}")
    started = time.monotonic()
    # The memory of the previous server may be about to be freed.
    while preflight_checks.only_memory_fails(checks) and time.monotonic() - started < MEMORY_BACK_S:
        time.sleep(MEMORY_POLL_S)
        situation = replace(situation, machine=machine_inspect.inspect())
        checks = preflight_checks.run(situation)
    return situation, checks


def _cannot_boot(run: Run, subject: Subject, checks: Sequence[Check]) -> Failure | None:
    """Return the failure of a boot that need not be tried; None if it may be tried."""
    failed = preflight_checks.failed(checks)
    if not failed:
        return None
    return Failure(
        f"{subject.family.name} cannot boot on lane {run.lane.name}: {failed[0].what}\n"
        f"{preflight_checks.explain(checks)}",
        hint=preflight_report.preflight_command(subject.family, subject.checkpoint, run.lane.name),
    )
