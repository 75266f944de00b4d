"""Attaches to a running server: finds the model that it serves and sends one real request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http, ready
from pytest_vllm_gates.server import ready as server_ready
from pytest_vllm_gates.server.types import BASE_URL, Boot, BootTimes, Failure

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint

MODELS_S = 30.0
"""A busy server may be slow to list its models."""


def attach(endpoint: Endpoint, timeout_s: float, *, pools: bool = False) -> Boot:
    """Return the boot of a server that runs; a failure is returned, not raised.

    `endpoint`: its address; the model is not known yet. `pools`: whether it returns vectors.
    The failure is one of infrastructure if the server was not reached.
    """
    evidence: dict[str, Any] = {BASE_URL: endpoint.base_url}
    try:
        with http.client(endpoint) as client:
            models = ready.served_models(client, min(timeout_s, MODELS_S))
        if not models:
            raise ready.NotServing("the server lists no model")  # noqa: TRY301
        # A gateway may list a LoRA adapter, which has a parent, before its base model.
        bases = [name for name, model in models.items() if not model.get("parent")]
        endpoint = replace(endpoint, model=next(iter(bases or models)))
        evidence["served"] = models[endpoint.model]
        first_token_s = server_ready.first_answer(endpoint, timeout_s, pools=pools)
    except (httpx.HTTPError, httpx.InvalidURL, ready.NotServing) as error:
        return Boot(failure=_failure(error, endpoint), evidence=evidence)
    times = BootTimes(health_s=None, first_chat_s=None, first_token_s=first_token_s)
    return Boot(endpoint=endpoint, times=times, evidence=evidence)


def _failure(error: Exception, endpoint: Endpoint) -> Failure:
    base_url = endpoint.base_url
    if isinstance(error, ready.NotReached):
        hint = (endpoint.key_hint if error.hint == ready.KEY_HINT else "") or error.hint
        return Failure(f"{base_url}: {error}", hint=hint, infrastructure=True)
    if isinstance(error, ready.NotServing):
        return Failure(f"{base_url}: {error}", hint=f"curl {endpoint.base_url}/models")
    if why := ready.unreachable(error, endpoint.base_url):
        return Failure(
            f"no server answers at {base_url}: {why}", hint=why.hint, infrastructure=True
        )
    return Failure(
        f"no server answers at {base_url}: {error}", hint=f"curl {endpoint.base_url}/models"
    )
