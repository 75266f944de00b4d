"""Boots a family again for each combination of features, and sends the same questions."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.adapters import files as adapter_files
from pytest_vllm_gates.adapters.ask import AdapterWalk
from pytest_vllm_gates.catalog import flags
from pytest_vllm_gates.checkpoints import draft_heads
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.questions import load as load_questions
from pytest_vllm_gates.features import battery, pressure
from pytest_vllm_gates.features.battery import Answers
from pytest_vllm_gates.features.catalog import (
    BLOCKS,
    CHECKPOINT,
    CONNECTORS,
    DRAFT_HEAD,
    FOLDER,
    OVERLAY,
    with_places,
)
from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S
from pytest_vllm_gates.server import fallbacks, metrics, startup
from pytest_vllm_gates.session import boot as session_boot
from pytest_vllm_gates.session.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.adapters.types import AdapterAnswers, AdapterFiles
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.features.catalog import Combination
    from pytest_vllm_gates.features.pressure import CachePressure
    from pytest_vllm_gates.server.fallbacks import Choices
    from pytest_vllm_gates.session.run import Run, Subject

GRACE_S = 3.0
"""Seconds for a server that may be about to end after its answers."""


@dataclass(frozen=True)
class FeatureBoot:
    """The result of the boot of a combination."""

    combination: Combination
    launch: Launch
    without: Answers
    """The answers without the features."""
    answers: Answers
    """The answers with the features."""
    choices: Choices
    """vLLM's choices for the features' flags, from the log of the server that has them."""
    rose: dict[str, float]
    """The increase of counters of `/metrics` while the features were on."""
    boot_s: float
    version: str | None
    """vLLM's version, as the run's own server reported it."""
    death: str = ""
    """How it ended during the questions; '' if it did not."""
    serve: Mapping[str, Any] = field(default_factory=dict)
    """The flags of the combination, including those of its adapters."""
    adapters: AdapterAnswers | None = None
    """The answers of its adapters; None if it has none."""


@dataclass
class FeatureBoots:
    """The boots of one family's combinations, each made at its first use."""

    run: Run
    subject: Subject
    launch: Launch
    folder: Path
    progress: Callable[[str], None]
    combinations: tuple[Combination, ...]
    adapters: tuple[AdapterFiles, ...] = ()
    """The adapters of the checkpoint."""
    _own: Answers | None = None
    _own_rose: dict[str, float] = field(default_factory=dict)
    _pressure: CachePressure | None = None
    _version: str | None = None
    _boots: dict[str, FeatureBoot] = field(default_factory=dict)

    @property
    def own(self) -> Answers:
        """The answers of the run's own server; raises `Blocked` as its endpoint does."""
        if self._own is None:
            endpoint = self.launch.endpoint()
            self._version = http.version(endpoint)
            deployed = [one for one in self.combinations if one.deployed]
            if any(feature.presses_cache for one in self.combinations for feature in one.features):
                serve = flags.serving(self.subject.family, self.subject.checkpoint, self.run.lane)
                self._pressure = pressure.of(startup.observe(endpoint, self.launch.log), serve)
            self._own, self._own_rose = self._ask(endpoint, _counters(deployed))
        return self._own

    def of(self, combination: Combination) -> FeatureBoot:
        """Return the boot of a combination; the run's own server ends before the first.

        Raises `NotApplicable` if the size of the KV cache, for filling it, is not reported.
        """
        if combination.name not in self._boots:
            _ = self.own
            if self._pressure is None and any(one.presses_cache for one in combination.features):
                raise NotApplicable("neither log nor metrics report the size of the KV cache")
            self.launch.stop()
            self._boots[combination.name] = self._boot(combination)
        return self._boots[combination.name]

    def _boot(self, combination: Combination) -> FeatureBoot:
        adapters = () if combination.deployed else self.adapters[: combination.adapters]
        own_flags = {**combination.serve, **adapter_files.flags(adapters)}
        serve, env = combination.booted(self.run.lane.serve, self.run.lane.env)
        serve |= adapter_files.flags(adapters)
        number = len(self._boots) + 1
        stored = self.folder / f"{number}-stored"
        shutil.rmtree(stored, ignore_errors=True)
        places = {
            FOLDER: str(stored),
            CHECKPOINT: str(self.subject.checkpoint.source),
            CONNECTORS: str(OVERLAY),
        }
        if any(feature.needs_draft_head for feature in combination.features):
            places[DRAFT_HEAD] = str(draft_heads.of(self.subject.checkpoint))
        if self._pressure:
            places[BLOCKS] = str(self._pressure.blocks)
        serve, own_flags = (with_places(each, places) for each in (serve, own_flags))
        env = with_places(env, places)
        lane = self.run.lane.model_copy(update={"serve": serve, "env": env})
        self.progress(
            f"{self.subject.family.name}: features {combination.name}, boot {number} of "
            f"{len(self.combinations)}"
        )
        began = time.monotonic()
        launch = self._asked_before(combination, places, number)
        if launch is None or launch.ok:
            launch = self._launched(lane, str(number))
        boot_s = time.monotonic() - began
        answers, rose, death = Answers(), dict[str, float](), ""
        of_adapters = None
        try:
            if launch.ok:
                endpoint = launch.endpoint()
                answers, rose = self._ask(endpoint, _counters([combination]))
                of_adapters = self._ask_adapters(endpoint, adapters, own_flags, number)
                broke = answers.errors or (of_adapters and of_adapters.broke)
                died = launch.death(GRACE_S if broke else 0.0)
                death = died.brief if died else ""
        finally:
            launch.stop()
            shutil.rmtree(stored, ignore_errors=True)
        without, on, log = self.own, answers, launch.log
        asked, variables = combination.serve, combination.env
        if combination.deployed:
            without, on, rose, log = answers, self.own, self._own_rose, self.launch.log
            asked, variables = self.run.lane.serve, self.run.lane.env
        choices = fallbacks.of_log(log, asked, variables, self._version)
        return FeatureBoot(
            combination, launch, without, on, choices, rose, boot_s, self._version, death,
            own_flags, of_adapters,
        )  # fmt: skip

    def _launched(self, lane: Lane, name: str) -> Launch:
        """Boot a lane; its log and files are in the folder of that name."""
        boot, server = session_boot.boot(
            self.run.of(lane), self.subject, self.folder / name, self.progress
        )
        return Launch(boot, server)

    def _asked_before(
        self, combination: Combination, places: Mapping[str, str], number: int
    ) -> Launch | None:
        """Boot the previous server, send it the same and end it; None if there is none."""
        if not combination.before or combination.deployed:
            return None
        serve = {**self.run.lane.serve, **with_places(combination.before, places)}
        lane = self.run.lane.model_copy(update={"serve": serve})
        launch = self._launched(lane, f"{number}-before")
        try:
            if launch.ok:
                self._ask(launch.endpoint())
        finally:
            launch.stop()
        return launch

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

    def _ask(
        self, endpoint: Endpoint, counters: Sequence[str] = ()
    ) -> tuple[Answers, dict[str, float]]:
        """Return a server's answers, and the increase of the counters meanwhile."""
        client = CompletionClient(endpoint, ANSWER_LIMIT_S)
        tokens = self.run.options.answer_tokens
        bodies = battery.requests(self.subject.family, self.run.conversations, tokens)
        pressing = {}
        if self._pressure:
            questions = load_questions()
            long = len(http.token_ids(endpoint, questions.filler))
            pressing = self._pressure.bodies(self.subject.family, questions, long)
        before = metrics.sums(endpoint, counters) if counters else {}
        answers = battery.ask(client, bodies, pressing)
        after = metrics.sums(endpoint, counters) if counters else {}
        return answers, {name: after[name] - before[name] for name in counters}


def _counters(combinations: Iterable[Combination]) -> list[str]:
    """Return the counters that show whether features have their effect."""
    return [
        name
        for combination in combinations
        for one in combination.features
        for name in (*one.rises, *one.rests)
    ]
