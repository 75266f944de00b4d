"""Boots a lane's server with one attention backend after the other, and sends equal requests."""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.backends.types import (
    DEFAULT,
    DIES,
    FAILS,
    REFUSED,
    REPLACED,
    SERVES,
    BackendTrial,
    refusal,
)
from pytest_vllm_gates.catalog import conversation as conversations, flags, toml
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.questions import load as load_questions, question
from pytest_vllm_gates.numerics.checks import output_distance, prompt_distance, tolerance_of
from pytest_vllm_gates.numerics.client import compute, dtype, is_small, served_scores
from pytest_vllm_gates.prompts.reference import ReferenceRenderer
from pytest_vllm_gates.server import fallbacks, startup
from pytest_vllm_gates.server.launch import LaunchPlan, Server
from pytest_vllm_gates.server.log import read_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_vllm_gates.backends.catalog import Backend
    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.numerics.types import Scores
    from pytest_vllm_gates.server.patience import BootLimits

PROMPTS = 4
OUTPUT_TOKENS = 16
COMPANY = 8
SPEED_TOKENS = 64
ROUNDS = 3
ANSWER_S = 300.0
GRACE_S = 3.0
FP32, THE_DEFAULT = "transformers in fp32", "the default backend"


@dataclass(frozen=True)
class BackendTask:
    """The server to boot."""

    family: Family
    checkpoint: Checkpoint
    lane: Lane
    python: Path | None
    version: str | None
    folder: Path
    limits: BootLimits
    progress: Callable[[str], None]


class Trials:
    """The boots, one after the other; the default must be the first."""

    def __init__(self, task: BackendTask) -> None:
        self._task = task
        serve = flags.serving(task.family, task.checkpoint, task.lane)
        self._prompts = _prompts(task, serve)
        self._reference: Mapping[str, Scores] | None = None
        self._compared = THE_DEFAULT
        if task.python is not None and is_small(task.checkpoint):
            counted = {name: (ids, OUTPUT_TOKENS) for name, ids in self._prompts.items()}
            overlay = task.lane.overlay_path
            self._reference = compute(task.checkpoint, task.python, overlay, counted).cases
            self._compared = FP32

    def of(self, backend: Backend | None) -> BackendTrial:
        """Boot one backend (None: the default), send it the requests, and stop it."""
        task = self._task
        name, own = (backend.name, backend.serve) if backend else (DEFAULT, {})
        lane = task.lane.model_copy(update={"serve": with_backend(task.lane.serve, own)})
        plan = LaunchPlan(
            family=task.family, lane=lane, checkpoint=task.checkpoint, python=task.python,
            overlay=lane.overlay_path, folder=task.folder / name, limits=task.limits,
        )  # fmt: skip
        began = time.monotonic()
        server = Server(plan, task.progress)
        boot_s = time.monotonic() - began
        try:
            log = server.boot.evidence.get("log")
            text = read_from(Path(log)) if log else ""
            choices = fallbacks.read(text, own, {}, task.version)
            used = startup.read(text).facts.get("attention_backend", "")
            if server.boot.endpoint is None:
                why = refusal(text)
                brief = server.boot.failure.brief if server.boot.failure else ""
                return BackendTrial(
                    name, own, REFUSED if why else FAILS, why or brief, boot_s=boot_s
                )
            if choices.fallbacks:
                why = "; ".join(one.says for one in choices.fallbacks)
                return BackendTrial(name, own, REPLACED, why, used, boot_s=boot_s)
            return self._asked(name, own, used, server, boot_s)
        finally:
            server.stop()

    def _asked(
        self, name: str, own: Mapping[str, Any], used: str, server: Server, boot_s: float
    ) -> BackendTrial:
        endpoint = server.boot.endpoint
        assert endpoint is not None  # noqa: S101 - it booted
        try:
            scores = {
                case: served_scores(endpoint, ids, OUTPUT_TOKENS, score_prompt=True)
                for case, ids in self._prompts.items()
            }
            speed = self._speed(endpoint)
        except (httpx.HTTPError, OSError, ValueError, KeyError) as error:
            if server.alive(GRACE_S):
                why = f"a request failed: {type(error).__name__}: {error}"
            else:
                why = server.died().brief
            return BackendTrial(name, own, DIES, why, used, boot_s=boot_s)
        compared = self._compared
        if self._reference is None:
            self._reference, compared = scores, ""
        faults = [*self._faults(scores)] if compared else []
        return BackendTrial(name, own, SERVES, "", used, tuple(faults), compared, speed, boot_s)

    def _faults(self, scores: Mapping[str, Scores]) -> list[str]:
        assert self._reference is not None  # noqa: S101 - that is why this is asked
        allowed = tolerance_of(dtype(self._task.checkpoint))
        found = []
        for case, reference in self._reference.items():
            distances = [prompt_distance(scores[case], reference)]
            if reference.leads:
                distances.append(output_distance(scores[case], reference, allowed))
            found += [
                f"{case}: {fault}" for distance in distances for fault in distance.faults(allowed)
            ]
        return found

    def _speed(self, endpoint: Endpoint) -> float:
        """Return the output tokens per second of several requests at once, over some rounds."""
        questions = load_questions().questions
        bodies = [
            question(self._task.family, questions[number % len(questions)], SPEED_TOKENS)
            | {"ignore_eos": True, "min_tokens": SPEED_TOKENS}
            for number in range(COMPANY)
        ]
        client = CompletionClient(endpoint, ANSWER_S)
        rates = []
        for _ in range(ROUNDS):
            began = time.monotonic()
            answers = client.together(bodies)
            took_s = time.monotonic() - began
            if errors := [answer.error for answer in answers if answer.error]:
                raise ValueError(errors[0])
            rates.append(sum(len(answer.token_ids) for answer in answers) / took_s)
        return statistics.median(rates)


def with_backend(serve: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a lane's flags with a backend's; a table keeps the lane's other keys."""
    return toml.merged(flags.merged(serve), own)


def _prompts(task: BackendTask, serve: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the token ids of some short conversations, by name."""
    fitting = [
        one
        for one in conversations.load_all(task.folder)
        if one.ask and not one.why_not(task.family)
    ][:PROMPTS]
    renderer = ReferenceRenderer(task.checkpoint, serve)
    with contextlib.closing(renderer):
        return {
            one.name: tuple(renderer.render(one.body(task.family)).token_ids) for one in fitting
        }
