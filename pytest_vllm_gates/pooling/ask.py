"""Requests vectors and scores from a server, by plain HTTP, as OpenAI's and Jina's clients do.

OpenAI's `/v1/embeddings`: https://platform.openai.com/docs/api-reference/embeddings. `/score` and
`/rerank` are vLLM's (Jina's form): https://docs.vllm.ai/en/stable/models/pooling_models/.
"""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
from openai.types import CreateEmbeddingResponse

from pytest_vllm_gates.client import form, http, official_types
from pytest_vllm_gates.client.form import Malformed, reading
from pytest_vllm_gates.pooling.types import (
    EMBEDDINGS,
    RERANK,
    SCORE,
    Embedded,
    Scored,
    Vector,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint

ERROR_CHARACTERS = 300
FLOAT_BYTES = 4
CHAT_BODY = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}


def embed(
    endpoint: Endpoint,
    group: str,
    name: str,
    value: str | Sequence[str] | Sequence[int],
    **fields: Any,
) -> Embedded:
    """Embed one text, several, or token ids; `fields` are the request's others.

    A refusal or a missing vector is reported in the result and not raised.
    """
    body = {"model": endpoint.model, "input": value, **fields}
    try:
        with http.client(endpoint) as client:
            reply = client.post(EMBEDDINGS, json=body)
    except httpx.HTTPError as error:
        return Embedded(name, group, body, status=0, error=f"{type(error).__name__}: {error}")
    if not reply.is_success:
        return Embedded(name, group, body, status=reply.status_code, error=message(reply))
    try:
        with reading(f"the answer of {EMBEDDINGS}"):
            answer = reply.json()
            base64_wanted = fields.get("encoding_format") == "base64"
            vectors, wrong = _vectors(answer, base64_wanted=base64_wanted)
            tokens = form.count(answer["usage"]["prompt_tokens"], "usage.prompt_tokens")
    except Malformed as error:
        return Embedded(name, group, body, status=reply.status_code, error=str(error))
    return Embedded(name, group, body, vectors, tokens, wrong, reply.status_code)


def _vectors(
    answer: Mapping[str, Any], *, base64_wanted: bool
) -> tuple[tuple[Vector, ...], tuple[str, ...]]:
    """Return the vectors in the order of their index, and the faults of the form."""
    wrong: list[str] = []
    if not base64_wanted:  # the client decodes base64 by itself, and its type has numbers
        wrong += official_types.wrong_fields(CreateEmbeddingResponse, answer)
    data = answer["data"]
    indices = [each["index"] for each in data]
    if indices != list(range(len(data))):
        wrong.append(f"index is {indices}, not 0 to {len(data) - 1} in order")
    by_index = sorted(data, key=lambda each: each["index"])
    return tuple(_vector(each["embedding"]) for each in by_index), tuple(wrong)


def _vector(value: Any) -> Vector:
    """Return a vector; base64 contains float32 in little-endian order, as OpenAI's does."""
    if isinstance(value, str):
        data = base64.b64decode(value, validate=True)
        if len(data) % FLOAT_BYTES:
            raise ValueError(f"base64 of {len(data)} bytes, which are not float32 numbers")
        return struct.unpack(f"<{len(data) // FLOAT_BYTES}f", data)
    return tuple(float(number) for number in value)


def score(endpoint: Endpoint, question: str, documents: Sequence[str]) -> Scored:
    """Score documents for a question (`POST /score`)."""
    body = {"model": endpoint.model, "text_1": question, "text_2": list(documents)}
    return _scored(endpoint, SCORE, body, "data", "score")


def rerank(endpoint: Endpoint, question: str, documents: Sequence[str], top: int) -> Scored:
    """Have documents ranked, the best `top` of them (`POST /rerank`)."""
    body = {
        "model": endpoint.model,
        "query": question,
        "documents": list(documents),
        "top_n": top,
    }
    return _scored(endpoint, RERANK, body, "results", "relevance_score")


def _scored(endpoint: Endpoint, route: str, body: dict[str, Any], rows: str, key: str) -> Scored:
    try:
        with http.client(endpoint) as client:
            reply = client.post(route, json=body)
    except httpx.HTTPError as error:
        return Scored(route, body, status=0, error=f"{type(error).__name__}: {error}")
    if not reply.is_success:
        return Scored(route, body, status=reply.status_code, error=message(reply))
    try:
        with reading(f"the answer of {route}"):
            scores = tuple(
                (form.count(row["index"], "index"), float(row[key])) for row in reply.json()[rows]
            )
    except Malformed as error:
        return Scored(route, body, status=reply.status_code, error=str(error))
    return Scored(route, body, scores, reply.status_code)


def chat(endpoint: Endpoint) -> tuple[int, str]:
    """Send a chat, which has to be refused; return the status and the message."""
    try:
        reply = http.post(endpoint, http.CHAT, CHAT_BODY)
    except httpx.HTTPError as error:
        return 0, f"{type(error).__name__}: {error}"
    return reply.status_code, message(reply)


def message(reply: httpx.Response) -> str:
    """Return an error's message, or the beginning of the body without one."""
    try:
        with reading("an error"):
            return form.text(reply.json()["error"]["message"], "message")[:ERROR_CHARACTERS]
    except Malformed:
        return reply.text[:ERROR_CHARACTERS]
