"""Requests classes of texts and scores of pairs from a server, by plain HTTP.

All three routes are vLLM's own; `/rerank` has the form of Jina's and Cohere's:
https://docs.vllm.ai/en/stable/models/pooling_models/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.form import Malformed, reading
from pytest_vllm_gates.pooling import ask
from pytest_vllm_gates.pooling.classes import CLASSIFY, Classified
from pytest_vllm_gates.pooling.types import RERANK, SCORE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint


def classify(endpoint: Endpoint, group: str, name: str, value: object, **fields: Any) -> Classified:
    """Classify one text, several, or token ids (`POST /classify`)."""
    return _asked(endpoint, group, name, CLASSIFY, {"input": value, **fields})


def score(
    endpoint: Endpoint,
    group: str,
    name: str,
    questions: str | Sequence[str],
    documents: str | Sequence[str],
    **fields: Any,
) -> Classified:
    """Score pairs (`POST /score`)."""
    body = {"text_1": questions, "text_2": documents, **fields}
    return _asked(endpoint, group, name, SCORE, body)


def rerank(  # noqa: PLR0917
    endpoint: Endpoint, group: str, name: str, question: str, documents: Sequence[str], top: int
) -> Classified:
    """Have documents ranked, the best `top` of them (`POST /rerank`)."""
    body = {"query": question, "documents": list(documents), "top_n": top}
    return _asked(endpoint, group, name, RERANK, body)


def _asked(
    endpoint: Endpoint, group: str, name: str, route: str, fields: Mapping[str, Any]
) -> Classified:
    """Send one request; a refusal or an unreadable answer is reported in the result."""
    body = {"model": endpoint.model, **fields}
    try:
        with http.client(endpoint) as client:
            reply = client.post(route, json=body)
    except httpx.HTTPError as error:
        unanswered = f"{type(error).__name__}: {error}"
        return Classified(name, group, route, body, status=0, error=unanswered)
    status = reply.status_code
    if not reply.is_success:
        return Classified(name, group, route, body, status=status, error=ask.message(reply))
    try:
        with reading(f"the answer of {route}"):
            answer = reply.json()
            found = answer["results" if route == RERANK else "data"]
            return Classified(
                name,
                group,
                route,
                body,
                rows=tuple(_row(route, row) for row in found),
                labels=tuple(row.get("label") for row in found),
                indices=tuple(form.count(row["index"], "index") for row in found),
                prompt_tokens=form.count(answer["usage"]["prompt_tokens"], "usage.prompt_tokens"),
                status=status,
            )
    except Malformed as error:
        return Classified(name, group, route, body, status=status, error=str(error))


def _row(route: str, row: Mapping[str, Any]) -> tuple[float, ...]:
    if route == CLASSIFY:
        return tuple(float(number) for number in row["probs"])
    return (float(row["relevance_score" if route == RERANK else "score"]),)
