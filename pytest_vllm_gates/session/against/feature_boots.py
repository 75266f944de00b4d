"""Boots a family once more for each combination of features, and asks what was asked without."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.adapters import files as adapter_files
from pytest_vllm_gates.adapters.ask import AdapterWalk
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.features import battery
from pytest_vllm_gates.features.battery import Answers
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S
from pytest_vllm_gates.server import metrics
from pytest_vllm_gates.session import boot as session_boot
from pytest_vllm_gates.session.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_vllm_gates.adapters.types import AdapterAnswers, AdapterFiles
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.features.catalog import Combination
    from pytest_vllm_gates.session.run import Run, Subject

GRACE_S = 3.0
"""What a server gets that may be about to end after its answers."""


@dataclass(frozen=True)
class FeatureBoot:
    """What came of the boot of a combination."""

    combination: Combination
    launch: Launch
    answers: Answers
    rose: dict[str, float]
    """By how much counters of `/metrics` rose while it was asked."""
    boot_s: float
    version: str | None
    """That of vLLM, as the run's own server told it."""
    death: str = ""
    """How it ended while it was asked; '' where it did not."""
    serve: Mapping[str, Any] = field(default_factory=dict)
    """The flags that the combination added, those of its adapters with them."""
    adapters: AdapterAnswers | None = None
    """What was asked of its adapters; None where it has none."""


@dataclass
class FeatureBoots:
    """The boots of one family's combinations, each made when it is first asked for."""

    run: Run
    subject: Subject
    launch: Launch
    folder: Path
    progress: Callable[[str], None]
    combinations: tuple[Combination, ...]
    adapters: tuple[AdapterFiles, ...] = ()
    """Those that the checkpoint has."""
    _without: Answers | None = None
    _version: str | None = None
    _boots: dict[str, FeatureBoot] = field(default_factory=dict)

    @property
    def without(self) -> Answers:
        """The answers of the run's own server; raises `Blocked` as its endpoint does."""
        if self._without is None:
            endpoint = self.launch.endpoint()
            self._version = http.version(endpoint)
            self._without = self._ask(endpoint)
        return self._without

    def of(self, combination: Combination) -> FeatureBoot:
        """Return the boot of a combination; the run's own server ends before the first."""
        if combination.name not in self._boots:
            _ = self.without
            self.launch.stop()
            self._boots[combination.name] = self._boot(combination)
        return self._boots[combination.name]

    def _boot(self, combination: Combination) -> FeatureBoot:
        adapters = self.adapters[: combination.adapters]
        serve = {**combination.serve, **adapter_files.flags(adapters)}
        lane = self.run.lane.model_copy(
            update={
                "serve": {**self.run.lane.serve, **serve},
                "env": {**self.run.lane.env, **combination.env},
            }
        )
        number = len(self._boots) + 1
        self.progress(
            f"{self.subject.family.name}: features {combination.name}, boot {number} of "
            f"{len(self.combinations)}"
        )
        began = time.monotonic()
        boot, server = session_boot.boot(
            self.run.of(lane), self.subject, self.folder / str(number), self.progress
        )
        launch, boot_s = Launch(boot, server), time.monotonic() - began
        if not launch.ok:
            return FeatureBoot(
                combination, launch, Answers(), {}, boot_s, self._version, serve=serve
            )
        try:
            endpoint = launch.endpoint()
            names = [name for one in combination.features for name in (*one.rises, *one.rests)]
            before = metrics.sums(endpoint, names)
            answers = self._ask(endpoint)
            after = metrics.sums(endpoint, names)
            asked = self._ask_adapters(endpoint, adapters, serve, number)
            broke = answers.errors or (asked and asked.broke)
            died = launch.death(GRACE_S if broke else 0.0)
            rose = {name: after[name] - before[name] for name in names}
            death = died.brief if died else ""
        finally:
            launch.stop()
        return FeatureBoot(
            combination, launch, answers, rose, boot_s, self._version, death, serve, asked
        )

    def _ask_adapters(
        self,
        endpoint: Endpoint,
        adapters: tuple[AdapterFiles, ...],
        serve: Mapping[str, Any],
        number: int,
    ) -> AdapterAnswers | None:
        if not adapters:
            return None
        names = {adapter.name for adapter in adapters}
        walk = AdapterWalk(endpoint, self.subject.family, adapters, names)
        return walk.run(self.folder / f"{number}-adapters", adapter_files.served_rank(serve))

    def _ask(self, endpoint: Endpoint) -> Answers:
        client = CompletionClient(endpoint, ANSWER_LIMIT_S)
        tokens = self.run.options.answer_tokens
        bodies = battery.requests(self.subject.family, self.run.conversations, tokens)
        return battery.ask(client, bodies)
