"""Restarts two replicas of a family, one after the other, while a balancer sends them requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.lifecycle.balancer import BalancedTraffic, Balancer
from pytest_vllm_gates.lifecycle.types import GRACE_S
from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S

if TYPE_CHECKING:
    from pytest_vllm_gates.lifecycle.balancer import BalancedRequest
    from pytest_vllm_gates.session.against.replicas import Replicas
    from pytest_vllm_gates.session.launch import Launch

NAMES = ("first", "second")
LEAST_REQUESTS = 500
SETTLED_REQUESTS = 40
"""Requests that both replicas answer before the first restart, and after the last one."""
MOST_WAIT_S = 600.0
"""Seconds after the restarts in which the clients may reach that many requests."""


@dataclass(frozen=True)
class RollingRestart:
    """The result of the restarts."""

    requests: tuple[BalancedRequest, ...]
    unanswered: int
    """Requests while no replica was available."""
    failures: dict[str, str]
    """Why a replica did not serve, by its name."""
    left: dict[str, int]
    """Requests that were in flight at a replica when it was ended, if any."""

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        served = [request.replica for request in self.requests]
        return {
            "requests": len(served),
            "by_replica": {name: served.count(name) for name in sorted({*served})},
            "unanswered": self.unanswered,
            "left": self.left,
        }


@dataclass
class RollingRestarts:
    """The rolling restart of one family, made at its first use."""

    replicas: Replicas
    _made: RollingRestart | None = None

    def made(self) -> RollingRestart:
        """Return the rolling restart; the run's own server ends before it.

        Raises `NotApplicable` if two servers do not fit.
        """
        if self._made is None:
            self.replicas.end_the_own()
            if not self.replicas.room_for_two():
                raise NotApplicable("the memory does not suffice for two servers at once")
            self._made = self._restart()
        return self._made

    def _restart(self) -> RollingRestart:
        balancer = Balancer()
        running: dict[str, Launch] = {}
        failures: dict[str, str] = {}
        left: dict[str, int] = {}

        def boot(name: str, title: str, times: int) -> bool:
            launch = self.replicas.boot(f"rolling-{name}-{times}", title, taped=False)
            running[name] = launch
            if not launch.ok:
                launch.check_surroundings()
                failures[name] = f"{title}: {launch.explain()}"
                return False
            client = CompletionClient(launch.endpoint(), ANSWER_LIMIT_S)
            bodies = self.replicas.bodies
            balancer.put_in(f"{name}, boot {times}", lambda number: client.ask(bodies[number]))
            return True

        try:
            if not all(boot(name, f"the {name} of two replicas", 1) for name in NAMES):
                return RollingRestart((), 0, failures, left)
            with BalancedTraffic(balancer, len(self.replicas.bodies)) as traffic:
                traffic.wait_for(SETTLED_REQUESTS, MOST_WAIT_S)
                for name in NAMES:
                    if still := balancer.take_out(f"{name}, boot 1", GRACE_S):
                        left[name] = still
                    running[name].stop()
                    if not boot(name, f"the {name} replica again, under requests", 2):
                        break
                else:
                    more = len(traffic.requests) + SETTLED_REQUESTS
                    traffic.wait_for(max(LEAST_REQUESTS, more), MOST_WAIT_S)
        finally:
            for launch in running.values():
                launch.stop()
        return RollingRestart(tuple(traffic.requests), traffic.unanswered, failures, left)
