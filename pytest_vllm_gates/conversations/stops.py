"""Finds the tokens at which a server ends an answer, by making it write each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.form import reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint

BIAS = 100
"""The maximum of the API; no logit of a model is close to it."""
TOKENS = 3


def finish_reasons(
    endpoint: Endpoint, prompt: Sequence[int], tokens: Mapping[str, int]
) -> dict[str, str | None]:
    """Return, by token name, the finish reason of an answer that is forced to be the token.

    "stop": the server ends an answer there. "length": it continues. None: the model cannot write
    the token.
    """
    return {name: _finish_reason(endpoint, prompt, number) for name, number in tokens.items()}


def _finish_reason(endpoint: Endpoint, prompt: Sequence[int], token_id: int) -> str | None:
    body = {
        "prompt": list(prompt),
        "max_tokens": TOKENS,
        "temperature": 0,
        "logit_bias": {str(token_id): BIAS},
    }
    reply = http.post(endpoint, "/v1/completions", body)
    if reply.status_code == httpx.codes.BAD_REQUEST:
        return None
    reply.raise_for_status()
    with reading("the answer of /v1/completions"):
        return str(reply.json()["choices"][0]["finish_reason"])
