"""Boots a family once more as it was, asks what was asked before, and tells it to stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.questions import load, question
from pytest_vllm_gates.lifecycle import stop
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S
from pytest_vllm_gates.session import boot as session_boot
from pytest_vllm_gates.session.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.lifecycle.types import StoppedServer
    from pytest_vllm_gates.session.run import Run, Subject

STORY = "Tell me a long story about a lighthouse."


@dataclass(frozen=True)
class SecondBoot:
    """What came of it."""

    launch: Launch
    questions: Sequence[str]
    first: Sequence[Completion]
    """What the first boot answered."""
    second: Sequence[Completion]
    stopped: StoppedServer | None
    """None where it did not serve."""
    version: str | None
    """That of vLLM, as the first boot told it."""


@dataclass
class SecondBooting:
    """The second boot of one family, made when it is first asked for."""

    run: Run
    subject: Subject
    launch: Launch
    folder: Path
    progress: Callable[[str], None]
    _first: Sequence[Completion] = field(default_factory=tuple)
    _version: str | None = None
    _made: SecondBoot | None = None

    def ask_first(self) -> None:
        """Ask the run's own server, once, before it ends; raises `Blocked` as its endpoint does."""
        if not self._first:
            endpoint = self.launch.endpoint()
            self._version = http.version(endpoint)
            self._first = self._ask(endpoint)

    def made(self) -> SecondBoot:
        """Return the second boot; the run's own server ends before it."""
        if self._made is None:
            self.ask_first()
            self.launch.stop()
            self._made = self._boot()
        return self._made

    def _boot(self) -> SecondBoot:
        self.progress(f"{self.subject.family.name}: lifecycle, the second boot")
        boot, server = session_boot.boot(self.run, self.subject, self.folder, self.progress)
        launch = Launch(boot, server)
        questions = load().questions
        try:
            if not launch.ok:
                return SecondBoot(launch, questions, self._first, (), None, self._version)
            endpoint = launch.endpoint()
            second = self._ask(endpoint)
            story = question(self.subject.family, STORY, stop.TOKENS)
            stopped = stop.stop(endpoint, story, launch.stoppable()[0])
        finally:
            launch.stop()
        return SecondBoot(launch, questions, self._first, second, stopped, self._version)

    def _ask(self, endpoint: Endpoint) -> Sequence[Completion]:
        client, plan = CompletionClient(endpoint, ANSWER_LIMIT_S), load()
        family, tokens = self.subject.family, plan.answer_tokens
        return [client.ask(question(family, text, tokens)) for text in plan.questions]
