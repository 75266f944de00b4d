"""Boots a server and returns an endpoint that answers, or a failure."""

from __future__ import annotations

import secrets
import socket
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import flags
from pytest_vllm_gates.client import ready
from pytest_vllm_gates.client.bounds import DEFAULT, Bounds
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.environment.overlay import lane_environment
from pytest_vllm_gates.process.guard import descendants
from pytest_vllm_gates.process.process import GuardedProcess, Process
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.server import key_demand, ready as server_ready
from pytest_vllm_gates.server.log import LogWatch, earliest_error, read_from
from pytest_vllm_gates.server.patience import BootLimits, Patience
from pytest_vllm_gates.server.types import Boot, BootTimes, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Protocol

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.tape import Tape
    from pytest_vllm_gates.server.failure import Explanation

    Explain = Callable[[Path, int | None], Explanation | None]

    class Start(Protocol):
        """Starts a command under a guard, with its output in a log."""

        def __call__(  # noqa: D102
            self, argv: Sequence[str], *, env: Mapping[str, str], log: Path
        ) -> Process: ...


POLL_S = 0.1
PORT_TRIES = 3
PORT_TAKEN = ("address already in use", "EADDRINUSE")
INTERRUPT_GRACE_S = 1.0


@dataclass(frozen=True)
class LaunchPlan:
    """Everything one boot needs to know."""

    family: Family
    lane: Lane
    checkpoint: Checkpoint
    python: Path | None
    overlay: Path | None
    folder: Path
    """The folder of the log."""
    limits: BootLimits
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of this boot besides the lane's environment: its devices, if it has its own."""
    redactor: Redactor = field(default_factory=Redactor)
    """Gets each boot's key as soon as it is created."""
    renderer: bool = False
    """Boot vLLM's renderer alone: tokenizer, template and config, no weights and no accelerator."""
    tape: Tape | None = None
    """Records the requests that are sent to the server."""
    bounds: Bounds = DEFAULT
    """The limits of its answers."""
    demands_key: bool = False
    """Whether every route but `/health` requires the key; vLLM itself requires it for some."""


class Server:
    """One boot of a plan and its processes; `stop` ends it and everything it started.

    `explain` names a failure from the log and the exit status, if given. `taken` is a server that
    was booted before, with its process: nothing is booted then.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        progress: Callable[[str], None],
        on_log: Callable[[str], None] | None = None,
        explain: Explain | None = None,
        *,
        start: Start = GuardedProcess,
        taken: tuple[Boot, Process] | None = None,
    ) -> None:
        self._plan = plan
        self._explain = explain
        self._progress = progress
        self._on_log = on_log
        self._start = start
        self.process: Process | None = None
        if taken:
            self.boot, self.process = taken
            return
        try:
            self.boot = self._boot()
        except BaseException:
            self.stop(INTERRUPT_GRACE_S)
            raise

    def alive(self, wait_s: float = 0.0) -> bool:
        """Return whether the server's process runs, and still does after `wait_s` seconds."""
        return self.process is not None and self.process.wait(wait_s) is None

    def stop(self, grace_s: float | None = None) -> int | None:
        """End the server with everything it started; return its exit status."""
        return self.process.stop(grace_s) if self.process else None

    def died(self) -> Failure:
        """Return the failure of a server that served and then ended."""
        assert self.process is not None  # noqa: S101 - only a booted server can die
        status = self.process.poll()
        return self._failure(f"the server died while serving{_status(status)}", status)

    def _boot(self) -> Boot:
        for attempt in range(1, PORT_TRIES + 1):
            log = self._plan.folder / f"server{f'-{attempt}' if attempt > 1 else ''}.log"
            log.unlink(missing_ok=True)
            boot = self._boot_once(free_port(), log)
            port_taken = boot.failure and any(word in read_from(log).lower() for word in PORT_TAKEN)
            if not port_taken or self.alive():
                break
            self._progress(
                f"{self._plan.family.name}: another process took the port; trying another port"
            )
        if boot.failure:
            self.stop()
        return replace(boot, evidence={**boot.evidence, "boot_attempts": attempt})

    def _boot_once(self, port: int, log: Path) -> Boot:
        fixed_alias = self._plan.lane.served_model_name
        alias = fixed_alias or f"{self._plan.family.name}-{secrets.token_hex(4)}"
        key = secrets.token_urlsafe(24)
        self._plan.redactor.learn(key)
        argv = command(self._plan, port, alias)
        evidence = {"command": argv, "log": str(log)}
        base_url = f"http://127.0.0.1:{port}/v1"
        endpoint = Endpoint(base_url, alias, key, self._plan.tape, self._plan.bounds)
        started = time.monotonic()
        self.process = self._start(argv, env=environment(self._plan, key), log=log)
        failure = self._await_health(endpoint, log)
        if failure:
            return Boot(failure=failure, evidence=evidence)
        health_s = time.monotonic() - started
        try:
            first_token_s = self._prove(endpoint)
        except ready.NotServing as error:
            message = f"the server came up healthy and failed its first prompt: {error}"
            status = self.process.wait(1.0)
            return Boot(
                failure=self._failure(
                    message + (_status(status) if status is not None else ""), status
                ),
                evidence=evidence,
            )
        times = BootTimes(
            health_s=health_s,
            first_chat_s=time.monotonic() - started,
            first_token_s=first_token_s,
        )
        return Boot(endpoint=endpoint, times=times, evidence=evidence)

    def _prove(self, endpoint: Endpoint) -> float | None:
        """Send one real prompt; return the seconds to its first token, None from a renderer."""
        timeout_s = self._plan.limits.stall_s
        if self._plan.renderer:
            server_ready.first_rendering(endpoint, timeout_s)
            return None
        pools = self._plan.family.pooling is not None
        return server_ready.first_answer(endpoint, timeout_s, pools=pools)

    def _await_health(self, endpoint: Endpoint, log: Path) -> Failure | None:
        """Wait until the server is healthy; return the failure if it never will be."""
        assert self.process is not None  # noqa: S101 - set by the only caller
        watch = LogWatch(log, self._on_log)
        patience = Patience(self._plan.limits, watch, self._processes)
        while True:
            status = self.process.poll()
            healthy = status is None and server_ready.healthy(
                endpoint, by_models=self._plan.lane.served_model_name is not None
            )
            # After both, so that a server's last words before either are shown, too.
            too_long = patience.too_long()
            if status is not None:
                message = f"the server ended before it was ready{_status(status)}"
                return self._failure(message, status)
            if healthy:
                return None
            if too_long:
                return self._failure(too_long.what, starved=too_long.starved)
            waited_s = patience.waited_s
            self._progress(
                f"{self._plan.family.name}: booting {self._plan.checkpoint.name} on lane "
                f"{self._plan.lane.name}, {waited_s:.0f} s  {watch.last_line}"
            )
            time.sleep(min(POLL_S, waited_s))

    def _processes(self) -> list[int]:
        return [self.process.pid, *descendants(self.process.pid)] if self.process else []

    def _failure(
        self, message: str, status: int | None = None, *, starved: bool = False
    ) -> Failure:
        assert self.process is not None  # noqa: S101 - nothing fails before it starts
        log = self.process.log
        explanation = self._explain(log, status) if self._explain and log.exists() else None
        # An explanation quotes the log itself, and reads one of any size.
        excerpt = () if explanation and explanation.id else earliest_error(log)
        return Failure(
            what=message,
            log=log,
            excerpt=excerpt,
            hint="run again on an idle machine, or raise the limit" if starved else "",
            explanation=explanation,
            infrastructure=starved,
        )


def command(plan: LaunchPlan, port: int, alias: str) -> list[str]:
    """Return the server's command line; no secret is in it."""
    source: dict[str, Any] = {"model": plan.checkpoint.source}
    if plan.checkpoint.revision:
        source["revision"] = plan.checkpoint.revision
    served = flags.merged(
        source,
        {"served_model_name": [plan.family.name, alias], "host": "127.0.0.1", "port": port},
        flags.serving(plan.family, plan.checkpoint, plan.lane),
    )
    served.pop("api_key", None)  # each boot has its own key, in its environment
    if _hub_token(plan):
        del served["hf_token"]  # it is in the environment, too
    arguments = flags.command_line(served)
    if plan.demands_key:
        arguments += key_demand.ARGUMENTS
    program = (plan.renderer and plan.lane.start.renderer) or plan.lane.start.server
    return flags.start_command(
        plan.lane, [str(plan.python), *program], arguments, plan.checkpoint.source, port
    )


def environment(plan: LaunchPlan, api_key: str) -> dict[str, str]:
    """Return the server's environment: this one, the lane's, the key and the overlay.

    A token from the flags is put here: every user can read a command line (proc(5)).
    """
    server = {"VLLM_API_KEY": api_key}
    if token := _hub_token(plan):
        server["HF_TOKEN"] = token
    if plan.checkpoint.folder:
        server["HF_HUB_OFFLINE"] = "1"
    variables = lane_environment(plan.lane, plan.python, plan.overlay, plan.env, server)
    if plan.demands_key:
        variables["PYTHONPATH"] = key_demand.import_path(variables)
    return variables


def _hub_token(plan: LaunchPlan) -> str | None:
    """Return the Hub's token of the flags; `hf_token = true` is none: vLLM then reads its file."""
    token = flags.serving(plan.family, plan.checkpoint, plan.lane).get("hf_token")
    return token if isinstance(token, str) else None


def free_port() -> int:
    """Return a port of the loopback interface on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _status(status: int | None) -> str:
    if status is None:
        return ""
    if status == 128 + 9:
        return " (killed with SIGKILL: often the kernel, out of host memory)"
    return f" (exit status {status})"
