"""Boots a family again unchanged, repeats the questions, and stops it during an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.questions import question
from pytest_vllm_gates.lifecycle import stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.lifecycle.types import StoppedServer
    from pytest_vllm_gates.session.against.replicas import Replicas
    from pytest_vllm_gates.session.launch import Launch

STORY = "Tell me a long story about a lighthouse."


@dataclass(frozen=True)
class SecondBoot:
    """The result of the second boot."""

    launch: Launch
    answers: Sequence[Completion]
    """Its answers to the first boot's questions."""
    stopped: StoppedServer | None
    """None if it did not serve."""


@dataclass
class SecondBooting:
    """The second boot of one family, made at its first use."""

    replicas: Replicas
    _made: SecondBoot | None = None

    def made(self) -> SecondBoot:
        """Return the second boot; the run's own server ends before it."""
        if self._made is None:
            self.replicas.end_the_own()
            self._made = self._boot()
        return self._made

    def _boot(self) -> SecondBoot:
        launch = self.replicas.boot("second", "unchanged, stopped while it answers")
        try:
            if not launch.ok:
                return SecondBoot(launch, (), None)
            endpoint = launch.endpoint()
            answers = self.replicas.ask(endpoint)
            story = question(self.replicas.subject.family, STORY, stop.TOKENS)
            stopped = stop.stop(endpoint, story, launch.stoppable()[0])
        finally:
            launch.stop()
        return SecondBoot(launch, answers, stopped)
