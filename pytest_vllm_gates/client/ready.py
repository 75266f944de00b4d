"""The models that a server lists, and the error of one that is up but does not serve."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx

from pytest_vllm_gates.client.form import Malformed, reading

PROBE_TIMEOUT_S = 5.0


class NotServing(Exception):  # noqa: N818 - a state of the server, told to a person
    """The server is up but does not serve; the text is its answer."""


def served_models(
    client: httpx.Client, timeout_s: float = PROBE_TIMEOUT_S
) -> dict[str, dict[str, Any]]:
    """Return `/v1/models` by id; raises `NotServing` when it is not as in OpenAI's API."""
    reply = client.get("/v1/models", timeout=timeout_s)
    if reply.status_code == httpx.codes.UNAUTHORIZED:
        raise NotServing("the server refused the API key (401 on /v1/models)")
    try:
        with reading("the answer of /v1/models"):
            return {str(model["id"]): dict(model) for model in reply.json()["data"]}
    except Malformed as error:
        raise NotServing(
            f"/v1/models answered {reply.status_code} with {reply.text[:200]!r}; "
            "is this an OpenAI-compatible server?"
        ) from error
