"""Requests a model by each of its served names, and reads the name in its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.client.chat import SAMPLING
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.client.served_names import served_names
from pytest_vllm_gates.conversations.checks import events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

OK = 200
TOKENS = 1
MOST_NAMES = 4


@dataclass(frozen=True)
class NamedAnswer:
    """The answer to one request under one name."""

    requested: str
    mode: str
    """`whole` or `streamed`."""
    request: Mapping[str, Any]
    status: int
    named: tuple[str, ...]
    """The models that the answer names, each once."""


@dataclass(frozen=True)
class ModelNames:
    """The names of one model, and the answers under each."""

    names: tuple[str, ...]
    answers: tuple[NamedAnswer, ...]

    def faults(self) -> Iterator[tuple[NamedAnswer, str]]:
        """Yield each missing answer, and each that names a model that was not requested."""
        for answer in self.answers:
            others = [name for name in answer.named if name not in self.names]
            if answer.status != OK:
                yield answer, f"{answer.requested!r} is served, and answered {answer.status}"
            elif others or len(answer.named) != 1:
                named = ", ".join(map(repr, answer.named)) or "no model"
                yield answer, f"{answer.requested!r} was requested, and the answer is of {named}"


def ask(endpoint: Endpoint, body: Mapping[str, Any]) -> ModelNames:
    """Send a chat's body under every name of the endpoint's model, four at most."""
    names = served_names(endpoint)[:MOST_NAMES]
    request = {**SAMPLING, **body, "max_tokens": TOKENS}
    return ModelNames(
        names,
        tuple(
            _asked(endpoint, name, mode, {**request, "model": name, "stream": mode == "streamed"})
            for name in names
            for mode in ("whole", "streamed")
        ),
    )


def _asked(endpoint: Endpoint, name: str, mode: str, request: Mapping[str, Any]) -> NamedAnswer:
    reply = http.post(endpoint, http.CHAT, request)
    chunks = events.chunks(Recording(pieces=((0.0, reply.content),)))
    with reading("the answer"):
        bodies = chunks if mode == "streamed" or not reply.is_success else [reply.json()]
        named = dict.fromkeys(str(body.get("model")) for body in bodies)
    return NamedAnswer(name, mode, request, reply.status_code, tuple(named))
