"""Requests the version of a lane's running server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_vllm_gates.client import endpoint, http
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.lane import Lane

ASK_S = 5.0
KEY_VARIABLE = "OPENAI_API_KEY"


def version(lane: Lane, api_key_env: str = KEY_VARIABLE) -> str | None:
    """Return the version of vLLM that a lane's running server reports (`GET /version`).

    None for a lane that boots, and if the server is not reached or does not report one.
    `api_key_env`: the variable of the key if the lane names none.
    """
    if lane.base_url is None:
        return None
    try:
        return http.version(endpoint.of_lane(lane, os.environ, api_key_env), ASK_S)
    except UserError:  # a missing variable or certificate file: a run reports it
        return None
