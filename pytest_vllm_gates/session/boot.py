"""Boots a family's server for a run, or attaches to a kept one; gates get it as a `Launch`."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import files
from pytest_vllm_gates.checkpoints import prompt_files
from pytest_vllm_gates.client.bounds import Bounds
from pytest_vllm_gates.client.recorder import BOOT
from pytest_vllm_gates.environment import environment as environments
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import parts as incidents_parts
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.outcomes import Blocked
from pytest_vllm_gates.preflight import checks as preflight_checks, gather
from pytest_vllm_gates.report import checks as preflight_report
from pytest_vllm_gates.report.environment import bundle_document
from pytest_vllm_gates.server import launch
from pytest_vllm_gates.server.kept import registry as kept_registry
from pytest_vllm_gates.server.types import DID_NOT_BOOT, GONE, KEPT, Boot, Failure
from pytest_vllm_gates.session import all_reduce, unwritten
from pytest_vllm_gates.session.explain import explainer
from pytest_vllm_gates.session.keep_server import ServerKeeping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.options.table import Options
    from pytest_vllm_gates.preflight.types import Check, Situation
    from pytest_vllm_gates.server.launch import Server
    from pytest_vllm_gates.server.startup_check import Startup
    from pytest_vllm_gates.session.run import Run, Subject

MEMORY_BACK_S = 5.0
MEMORY_POLL_S = 0.5
PREFLIGHT = "preflight"
GUARDS = 2
"""The outer and the inner guard come first among a server's processes (`process/guard.py`)."""


def boot(
    run: Run,
    subject: Subject,
    folder: Path,
    progress: Callable[[str], None],
    on_log: Callable[[str], None] | None = None,
) -> tuple[Boot, launch.Server | None]:
    """Boot a family, or attach to what runs; a failure is returned, not raised.

    Raises `Blocked` where this machine keeps a server from being started, as a full disk does.
    """
    options, name = run.options, subject.family.name
    tape = run.tapes.get(name)
    with tape.part(BOOT) if tape else contextlib.nullcontext():
        if run.lane.base_url:
            key = os.environ.get(options.api_key_env)
            bounds = bounds_of(options)
            booted = launch.attach(run.lane.base_url, key, options.stall_timeout_s, tape, bounds)
            server = None
        else:
            try:
                environment = _environment(run, progress)
                plan = _plan(run, subject, environment, folder / name)
                booted, server = _served(
                    run, subject, plan, environment, progress=progress, on_log=on_log
                )
            except OSError as error:
                # Of this machine, its disk or its processes: no fault of what is served.
                reason = f"{error.strerror or error}: {error.filename}"
                raise Blocked(f"{name} could not be started: {reason}") from error
            except UserError as error:
                booted, server = Boot(failure=Failure(str(error))), None
            booted.evidence.setdefault(PREFLIGHT, [])
    run.boots[name] = booted
    if booted.endpoint and options.incidents:
        run.metrics[name] = incidents_parts.metrics(booted.endpoint)
    return booted, server


def _environment(run: Run, progress: Callable[[str], None]) -> Environment:
    """Return the lane's environment, made first if it is missing.

    Raises `UserError` when it cannot be made.
    """
    if run.environment is None:
        run.environment = environments.prepare(
            run.lane, cache=files.default_cache(), progress=progress
        )
        run.versions.update(run.environment.versions)
    return run.environment


def _plan(run: Run, subject: Subject, environment: Environment, folder: Path) -> launch.LaunchPlan:
    """Return what is to be started for a family."""
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
        limits=launch.BootLimits(options.boot_timeout_s, options.stall_timeout_s),
        tape=run.tapes.get(subject.family.name),
        bounds=bounds_of(options),
    )


def bounds_of(options: Options) -> Bounds:
    """Return the limits of a server's answers that the options set."""
    return Bounds.of(options.max_response_mib, options.response_timeout_s)


def _served(
    run: Run,
    subject: Subject,
    plan: launch.LaunchPlan,
    environment: Environment,
    *,
    progress: Callable[[str], None],
    on_log: Callable[[str], None] | None,
) -> tuple[Boot, launch.Server | None]:
    """Boot a plan, or take a kept server of it; raises `UserError` where nothing can be tried.

    What is known beforehand to fail is not tried.
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
        server = launch.Server(plan, progress, on_log, explain)
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
    """Return what is known of a boot before it, and what that comes to."""
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
    # The memory of the server before this one may be on its way back.
    while preflight_checks.only_memory_fails(checks) and time.monotonic() - started < MEMORY_BACK_S:
        time.sleep(MEMORY_POLL_S)
        situation = replace(situation, machine=machine_inspect.inspect())
        checks = preflight_checks.run(situation)
    return situation, checks


def _cannot_boot(run: Run, subject: Subject, checks: Sequence[Check]) -> Failure | None:
    """Return the failure of a boot that need not be tried; None where it may be."""
    if not preflight_checks.failed(checks):
        return None
    return Failure(
        f"{subject.family.name} cannot boot on lane {run.lane.name}\n"
        f"{preflight_checks.explain(checks)}",
        hint=preflight_report.preflight_command(subject.family, subject.checkpoint, run.lane.name),
    )


class Launch:
    """One boot as gates see it. It never raises: the boot gate judges what it came to."""

    def __init__(self, boot: Boot, server: Server | None) -> None:
        self.boot = boot
        self._server = server
        self._death: Failure | None = None

    @property
    def ok(self) -> bool:
        """Whether the server booted and answered a real chat."""
        return self.boot.endpoint is not None

    @property
    def kept(self) -> bool:
        """Whether the server was, or is to be, kept for another run."""
        return KEPT in self.boot.evidence

    @property
    def owned(self) -> bool:
        """Whether this run has the server to itself and may end it: it booted or was kept."""
        return self._server is not None

    def explain(self) -> str:
        """Return why there is no server, as a person reads it."""
        return self.boot.failure.explain() if self.boot.failure else "the server is up"

    def endpoint(self) -> Endpoint:
        """Return where the server answers; raises `Blocked` when it did not boot or has died."""
        if self.boot.endpoint is None:
            reason = self.boot.failure.brief if self.boot.failure else "no server"
            raise Blocked(f"{DID_NOT_BOOT}: {reason}")
        if self._death:
            raise Blocked(f"{GONE}: {self._death.brief}")
        return self.boot.endpoint

    @property
    def gone(self) -> Failure | None:
        """How a server that served has ended, as far as it was noticed."""
        return self._death

    def death(self, wait_s: float = 0.0) -> Failure | None:
        """Return how a server that served has died, once: later calls return None.

        `wait_s` is what a server gets that may be about to end.
        """
        if self._death or not self.ok or self._server is None or self._server.alive(wait_s):
            return None
        self._death = self._server.died()
        return self._death

    @property
    def folder(self) -> Path | None:
        """Where this run keeps what the server leaves: its log, its stacks."""
        log = self.boot.evidence.get("log")
        return Path(log).parent if log else None

    @cached_property
    def startup(self) -> Startup:
        """What the server tells of its start; raises `Blocked` as `endpoint` does."""
        from pytest_vllm_gates.server import startup as server_startup  # noqa: PLC0415

        log = self.boot.evidence.get("log")
        return server_startup.observe(self.endpoint(), Path(log) if log else None)

    def processes(self) -> list[int]:
        """Return the ids of every process the server consists of."""
        from pytest_vllm_gates.process.guard import descendants  # noqa: PLC0415

        process = self._server.process if self._server else None
        return [process.pid, *descendants(process.pid)] if process else []

    def stoppable(self) -> list[int]:
        """Return the ids of those that may be paused: all but the two guards, which end them."""
        return self.processes()[GUARDS:]

    def stop(self) -> int | None:
        """End the server and all it started; return its exit status."""
        if self._server is None:
            return None
        self._death = self._death or Failure("it was stopped at the end of the run")
        return self._server.stop()

    def release(self) -> None:
        """End the server at the end of a run, but leave one that is kept to the next."""
        from pytest_vllm_gates.server.kept.process import KeptProcess  # noqa: PLC0415

        process = self._server.process if self._server else None
        if isinstance(process, KeptProcess) and self.ok and self.kept:
            process.release()
        else:
            self.stop()

    @property
    def problem(self) -> str:
        """What could not be written when the server was ended or left, where that is so."""
        return getattr(self._server.process, "problem", "") if self._server else ""
