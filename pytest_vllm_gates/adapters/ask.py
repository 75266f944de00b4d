"""Requests answers of a server's adapters and base model: alone, together, and cached."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.adapters import loading
from pytest_vllm_gates.adapters.loading import UnfitPlan
from pytest_vllm_gates.adapters.types import (
    AdapterAnswers,
    ListedModel,
    ModelAnswer,
    UnknownRefusal,
)
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.completion import CompletionClient
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.client.questions import load, question
from pytest_vllm_gates.client.served_names import MODELS
from pytest_vllm_gates.robustness.client import ANSWER_LIMIT_S
from pytest_vllm_gates.server import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.adapters.types import AdapterFiles
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint

QUESTIONS = 4
COMPANY = 8
"""Concurrent requests."""
BEGINNINGS = 24
"""Repeats of the filler before the question that every model gets."""
LONG = "long prompt"
UNKNOWN = "no-such-adapter"
TEXT_CHARACTERS = 300


def listed(endpoint: Endpoint) -> tuple[ListedModel, ...]:
    """Return the entries of `/v1/models`; raises `httpx.HTTPError` without a list."""
    with http.client(endpoint) as client:
        reply = client.get(MODELS).raise_for_status()
    with reading(f"the answer of {MODELS}"):
        return tuple(
            ListedModel(
                str(entry["id"]), str(entry.get("root") or ""), str(entry.get("parent") or "")
            )
            for entry in reply.json()["data"]
        )


class AdapterWalk:
    """Sends all requests to a server with adapters."""

    def __init__(
        self, endpoint: Endpoint, family: Family, files: Sequence[AdapterFiles], names: set[str]
    ) -> None:
        """`names` are the known adapters that the server was started with."""
        plan = load()
        self._endpoint, self._family, self._files = endpoint, family, files
        self._client = CompletionClient(endpoint, ANSWER_LIMIT_S)
        self._tokens = plan.answer_tokens
        self._questions = plan.questions[:QUESTIONS]
        self._long = f"{plan.filler * BEGINNINGS}\n\n{plan.questions[0]}"
        self.answers = AdapterAnswers(base=(endpoint.model,), adapters=tuple(sorted(names)))

    def run(self, folder: Path | None, served_rank: int) -> AdapterAnswers:
        """Send all requests; a server that stops answering ends this, and `broke` has the reason.

        Adapters that do not fit a server of `served_rank` are written into `folder` and loaded,
        unless it is None.
        """
        try:
            self._list()
            if self.answers.adapters:
                self._ask_all(folder, served_rank)
        except httpx.HTTPError as error:
            self.answers.broke = f"{type(error).__name__}: {error}"
        return self.answers

    def _list(self) -> None:
        answers, model = self.answers, self._endpoint.model
        answers.listed = listed(self._endpoint)
        found = {entry.id for entry in answers.listed if entry.parent}
        own = next((entry.root for entry in answers.listed if entry.id == model), None)
        bases = [one.id for one in answers.listed if not one.parent and one.root == own]
        answers.base = tuple(dict.fromkeys([model, *bases]))
        answers.adapters = tuple(sorted({*answers.adapters, *found}))
        answers.begins = {
            one.name: one.begins
            for one in self._files
            if one.begins and one.name in answers.adapters
        }

    def _ask_all(self, folder: Path | None, served_rank: int) -> None:
        answers = self.answers
        models = ["", *answers.adapters]
        for text in self._questions:
            answers.alone += [self._asked(model, text) for model in models]
        answers.streamed += [
            self._asked(model, self._questions[0], stream=True) for model in models
        ]
        self._ask_on_prefixes(models)
        answers.company += self._in_company(models)
        answers.refusals += self._refused()
        if folder is None:
            answers.no_loading = "this run did not start the server"
        else:
            unfit = UnfitPlan(folder, served_rank)
            loading.load_all(self._endpoint, self._files, answers, unfit, self._asked_long)
        answers.base_after += [self._asked("", text) for text in self._questions]

    def _body(self, model: str, text: str, **more: Any) -> dict[str, Any]:
        body = question(self._family, text, self._tokens)
        return {**body, "model": model or self._endpoint.model, **more}

    def _asked(self, model: str, text: str, name: str = "", **more: Any) -> ModelAnswer:
        completion = self._client.ask(self._body(model, text, **more))
        return ModelAnswer(model, name or text, completion)

    def _asked_long(self, model: str) -> ModelAnswer:
        return self._asked(model, self._long, LONG)

    def _ask_on_prefixes(self, models: Sequence[str]) -> None:
        answers, salt = self.answers, secrets.token_hex(8)
        for number, model in enumerate(models):
            cold = self._asked(model, self._long, LONG, cache_salt=f"{salt}-{number}")
            answers.cold.append(cold)
        before = metrics.cached_tokens(self._endpoint)
        # Each model in turn, and all once more; the base model comes last.
        for model in [*models[1:], models[0]] * 2:
            answers.warm.append(self._asked(model, self._long, LONG, cache_salt=salt))
        answers.cached_tokens = metrics.cached_tokens(self._endpoint) - before

    def _in_company(self, models: Sequence[str]) -> list[ModelAnswer]:
        asked = [
            (models[number % len(models)], self._questions[number // len(models) % QUESTIONS])
            for number in range(COMPANY)
        ]
        bodies = [self._body(model, text, stream=True) for model, text in asked]
        completions = self._client.together(bodies)
        return [
            ModelAnswer(model, text, completion)
            for (model, text), completion in zip(asked, completions, strict=True)
        ]

    def _refused(self) -> list[UnknownRefusal]:
        name = f"{UNKNOWN}-{secrets.token_hex(4)}"
        chat = self._body(name, self._questions[0], temperature=0)
        completion = {"model": name, "prompt": self._questions[0], "max_tokens": 1}
        return [
            self._refusal(http.CHAT, chat),
            self._refusal(http.CHAT, {**chat, "stream": True}),
            self._refusal("/v1/completions", completion),
        ]

    def _refusal(self, route: str, body: dict[str, Any]) -> UnknownRefusal:
        try:
            reply = http.post(self._endpoint, route, body)
        except httpx.HTTPError as error:
            return UnknownRefusal(route, body, 0, "", f"{type(error).__name__}: {error}")
        try:
            told = reply.json().get("error")
            kind = str(told.get("type") or "") if isinstance(told, dict) else ""
        except (ValueError, AttributeError):
            kind = ""
        return UnknownRefusal(route, body, reply.status_code, kind, reply.text[:TEXT_CHARACTERS])
