"""Boots a family again, unchanged or with changes, and repeats its own server's questions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.questions import load, question
from pytest_vllm_gates.machine import inspect as machine_inspect
from pytest_vllm_gates.process.process import resident_bytes
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S
from pytest_vllm_gates.session import boot as session_boot
from pytest_vllm_gates.session.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.launch import LaunchPlan
    from pytest_vllm_gates.session.run import Run, Subject


ROOM = 1.25
"""Two servers are assumed to need this much more memory than the first, each."""


@dataclass
class Replicas:
    """The boots of one family for the lifecycle gate, one after the other or at once."""

    run: Run
    subject: Subject
    launch: Launch
    folder: Path
    progress: Callable[[str], None]
    most: int = 1
    """The number of boots that the collected tests make in all."""
    version: str | None = None
    """vLLM's version, as the run's own server reported it."""
    first: Sequence[Completion] = ()
    """The answers of the run's own server."""
    resident: int | None = None
    """The memory of its processes, in bytes."""
    boots_s: list[float] = field(default_factory=list)
    _begun: int = 0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The questions as request bodies."""
        plan = load()
        family = self.subject.family
        return [question(family, text, plan.answer_tokens) for text in plan.questions]

    @property
    def questions(self) -> Sequence[str]:
        """The questions' texts."""
        return load().questions

    @property
    def asked(self) -> list[tuple[str, Completion]]:
        """The questions, each with the answer of the run's own server."""
        return [*zip(self.questions, self.first, strict=True)]

    def ask_first(self) -> None:
        """Send the run's own server the questions, once; raises `Blocked` as its endpoint does."""
        if not self.first:
            endpoint = self.launch.endpoint()
            self.version = http.version(endpoint)
            self.first = self.ask(endpoint)
            self.resident = resident_bytes(self.launch.processes())

    def end_the_own(self) -> None:
        """Send the questions to the run's own server, if not done yet, and end it."""
        self.ask_first()
        self.launch.stop()

    def room_for_two(self) -> bool:
        """Return whether two servers fit: never on GPUs, because one takes all their memory."""
        available = machine_inspect.inspect().available_bytes
        if self.run.machine.gpus or not available or not self.resident:
            return False
        return available > 2 * ROOM * self.resident

    def ask(self, endpoint: Endpoint) -> Sequence[Completion]:
        """Return a server's answers to the questions, one after the other."""
        client = CompletionClient(endpoint, ANSWER_LIMIT_S)
        return [client.ask(body) for body in self.bodies]

    def boot(self, name: str, title: str, **changes: Any) -> Launch:
        """Boot the family in a folder of this name, with `changes` of its lane as in `varied`.

        It does not raise if the server does not boot: `Launch` has the failure.
        """
        self._tell(title)
        began = time.monotonic()
        run = self.varied(**changes)
        launch = Launch(*session_boot.boot(run, self.subject, self.folder / name, lambda _: None))
        if launch.ok:
            self.boots_s.append(time.monotonic() - began)
        return launch

    def plan(self, name: str, title: str, **changes: Any) -> LaunchPlan:
        """Return the plan of such a boot, for one that is to be cut short."""
        self._tell(title)
        return session_boot.plan(
            self.varied(**changes), self.subject, self.folder / name, self.progress
        )

    def varied(
        self,
        *,
        serve: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] | None = None,
        taped: bool = True,
    ) -> Run:
        """Return the run with other flags, variables or start of the server.

        Servers that boot at once are not `taped`: one tape has one part at a time.
        """
        lane = self.run.lane
        start = lane.start
        if program is not None:
            start = start.model_copy(update={"server": tuple(program)})
        update = {
            "serve": {**lane.serve, **(serve or {})},
            "env": {**lane.env, **(env or {})},
            "start": start,
        }
        varied = self.run.of(lane.model_copy(update=update))
        return replace(
            varied,
            environment=self.run.environment,
            versions=self.run.versions,
            tapes=self.run.tapes if taped else {},
        )

    def _tell(self, title: str) -> None:
        self._begun += 1
        each = f", about {max(self.boots_s):.0f} s each" if self.boots_s else ""
        which = f"boot {self._begun} of {self.most}{each}: {title}"
        self.progress(f"{self.subject.family.name}: lifecycle, {which}")
