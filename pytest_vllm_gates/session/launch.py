"""One boot as gates see it: its endpoint, its processes, its end."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.outcomes import Blocked, Infrastructure
from pytest_vllm_gates.server.types import (
    BASE_URL,
    DID_NOT_BOOT,
    DOES_NOT_SERVE,
    GONE,
    KEPT,
    Boot,
    Failure,
)

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.launch import Server
    from pytest_vllm_gates.server.startup_check import Startup

GUARDS = 2
"""The outer and the inner guard come first among a server's processes (`process/guard.py`)."""


class Launch:
    """One boot as gates see it. It never raises: the boot gate judges its result."""

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
        """Whether this run alone uses the server and may end it: it booted or was kept."""
        return self._server is not None

    def explain(self) -> str:
        """Return why no server booted, for a person."""
        return self.boot.failure.explain() if self.boot.failure else "the server is up"

    def check_surroundings(self) -> None:
        """Raise `Infrastructure` if the failure was outside the server."""
        failure = self.boot.failure
        if failure and failure.of_infrastructure:
            raise Infrastructure(failure.with_next_step)

    def endpoint(self) -> Endpoint:
        """Return the server's endpoint.

        Raises `Blocked` if it did not boot or has died, `Infrastructure` if the cause is not what
        is served.
        """
        if self.boot.endpoint is None:
            self.check_surroundings()
            reason = self.boot.failure.brief if self.boot.failure else "no server"
            begins = DOES_NOT_SERVE if BASE_URL in self.boot.evidence else DID_NOT_BOOT
            raise Blocked(f"{begins}: {reason}")
        if self._death:
            kind = Infrastructure if self._death.of_infrastructure else Blocked
            raise kind(f"{GONE}: {self._death.brief}")
        return self.boot.endpoint

    @property
    def gone(self) -> Failure | None:
        """How a server that served has ended, if that was noticed."""
        return self._death

    def death(self, wait_s: float = 0.0) -> Failure | None:
        """Return how a server that served has died, once: later calls return None.

        `wait_s` is the time for a server that may be about to end.
        """
        if self._death or not self.ok or self._server is None or self._server.alive(wait_s):
            return None
        self._death = self._server.died()
        return self._death

    @property
    def folder(self) -> Path | None:
        """The folder of this run for the server's files: its log, its stacks."""
        return self.log.parent if self.log else None

    @property
    def log(self) -> Path | None:
        """The file of the server's log; None for a server that this run does not own."""
        log = self.boot.evidence.get("log")
        return Path(log) if log else None

    @cached_property
    def startup(self) -> Startup:
        """The facts that the server reports of its start; raises `Blocked` as `endpoint` does."""
        from pytest_vllm_gates.server import startup as server_startup  # noqa: PLC0415

        return server_startup.observe(self.endpoint(), self.log)

    def phases_s(self) -> dict[str, float]:
        """Return the seconds of the start's phases, from the log alone; {} without a log."""
        from pytest_vllm_gates.server import startup as server_startup  # noqa: PLC0415

        return dict(server_startup.read_log(self.log).phases_s)

    def processes(self) -> list[int]:
        """Return the ids of all processes of the server."""
        from pytest_vllm_gates.process.guard import descendants  # noqa: PLC0415

        process = self._server.process if self._server else None
        return [process.pid, *descendants(process.pid)] if process else []

    def stoppable(self) -> list[int]:
        """Return the ids of processes that may be paused: all but the guards, which end them."""
        return self.processes()[GUARDS:]

    def stop(self) -> int | None:
        """End the server and all it started; return its exit status."""
        if self._server is None:
            return None
        self._death = self._death or Failure("it was stopped at the end of the run")
        return self._server.stop()

    def release(self) -> None:
        """End the server at the end of a run, but leave a kept one to the next."""
        from pytest_vllm_gates.server.kept.process import KeptProcess  # noqa: PLC0415

        process = self._server.process if self._server else None
        if isinstance(process, KeptProcess) and self.ok and self.kept:
            process.release()
        else:
            self.stop()

    @property
    def problem(self) -> str:
        """A file that could not be written at the server's end; empty if all were."""
        return getattr(self._server.process, "problem", "") if self._server else ""
