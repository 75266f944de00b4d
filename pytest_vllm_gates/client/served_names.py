"""The names that a server has for one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.form import reading

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint

MODELS = "/v1/models"


def served_names(endpoint: Endpoint) -> tuple[str, ...]:
    """Return every name of the endpoint's model, the endpoint's own first.

    If a model has several names, vLLM's answers always have the first one, whichever was requested,
    as documented (https://docs.vllm.ai/en/latest/cli/serve, --served-model-name). Raises
    `httpx.HTTPError` if the list of models cannot be read.
    """
    with http.client(endpoint) as client:
        reply = client.get(MODELS).raise_for_status()
    with reading(f"the answer of {MODELS}"):
        roots = {str(model["id"]): model.get("root") for model in reply.json()["data"]}
    own = roots.get(endpoint.model)
    names = [name for name, root in roots.items() if root == own and own is not None]
    return tuple(dict.fromkeys([endpoint.model, *names]))
