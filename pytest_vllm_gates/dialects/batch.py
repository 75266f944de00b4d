"""Sends several prompts in one request of the Completions API, and each one alone.

https://platform.openai.com/docs/api-reference/completions: `prompt` may be a list; choices have the
index of their prompt, and usage is the sum of all prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.untyped import number, record, records, shown
from pytest_vllm_gates.dialects.completions import PATH
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint

TOKENS = 32
"""Tokens of each answer: enough to distinguish the prompts."""
MOST = 3
REFUSED = (400, 404, 405, 422, 501)
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass(frozen=True)
class PromptBatch:
    """The bodies of the answers: one for all prompts, and one for each."""

    request: Mapping[str, Any]
    together: Mapping[str, Any]
    alone: tuple[Mapping[str, Any], ...]

    @property
    def case(self) -> Case:
        """The request with all prompts as a case."""
        return Case(f"{len(self.alone)} prompts in one request", request=self.request)


def ask(endpoint: Endpoint, prompts: Sequence[Sequence[int]]) -> PromptBatch:
    """Complete a few prompts, given as their tokens, in one request and alone.

    Raises `NotApplicable` for too few prompts, or if the server accepts no list of prompts.
    """
    prompts = list(dict.fromkeys(tuple(each) for each in prompts if each))[:MOST]
    if len(prompts) < MOST:
        raise NotApplicable("the server does not return the tokens of its chats' prompts")
    bodies = []
    requests: list[dict[str, Any]] = [
        {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True}
        for prompt in ([list(each) for each in prompts], *map(list, prompts))
    ]
    for request in requests:
        reply = http.post(endpoint, PATH, request)
        if reply.status_code in REFUSED:
            raise NotApplicable(
                f"{PATH} does not accept a list of prompts: answered {reply.status_code}"
            )
        with form.reading("the answer"):
            bodies.append(record(reply.raise_for_status().json()))
    return PromptBatch(requests[0], bodies[0], tuple(bodies[1:]))


def findings(batch: PromptBatch) -> Iterator[Finding]:
    """Yield differences between the answer to all prompts and the answers to each."""
    for sentence in _faults(batch):
        yield Finding(batch.case, sentence)


def _faults(batch: PromptBatch) -> Iterator[str]:
    choices = records(batch.together.get("choices"))
    indices = [choice.get("index") for choice in choices]
    if indices != list(range(len(batch.alone))):
        yield f"{len(batch.alone)} prompts were sent, and the choices have the indices {indices}"
        return
    alone = [_said(records(body.get("choices"))) for body in batch.alone]
    said = [_said([choice]) for choice in choices]
    for index, tokens in enumerate(said):
        # A token that is about as likely is allowed; another prompt's answer is a fault.
        if tokens != alone[index] and tokens in alone:
            other = alone.index(tokens)
            yield f"prompt {index} gets the answer that prompt {other} gets alone"
    told = record(batch.together.get("usage"))
    for name in COUNTS if said == alone else COUNTS[:1]:
        counts = [number(record(body.get("usage")).get(name)) for body in batch.alone]
        if all(counts) and told.get(name) != sum(counts):
            yield f"{name} is {shown(told.get(name))}, and alone {' + '.join(map(str, counts))}"


def _said(choices: Sequence[Mapping[str, Any]]) -> Any:
    """Return the tokens of the first choice; its text if it has none."""
    first = choices[0] if choices else {}
    return first.get("token_ids") or first.get("text")
