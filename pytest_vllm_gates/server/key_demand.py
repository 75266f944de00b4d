"""Makes a server require its key on every route but `/health`, by our own middleware.

The module is alone in `key-overlay/`: that folder is on the server's import path, and a module
beside it would hide others of the same name.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.client import http

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.endpoint import Endpoint

OVERLAY = Path(__file__).with_name("key-overlay")
ARGUMENTS = ("--middleware", "vllm_gates_key.DemandKey")
"""vLLM puts the last middleware of its flags around the others: these go to the end."""
RUST_FRONTEND = "VLLM_USE_RUST_FRONTEND"
PROBED = ("/metrics", "/version", "/openapi.json", "/load")
PROBE_S = 5.0


def possible(lane: Lane, environment: Mapping[str, str]) -> bool:
    """Return whether a lane's server can import the middleware.

    The program of a `command` may run in a container, and vLLM's Rust frontend has no ASGI.
    """
    return lane.command is None and environment.get(RUST_FRONTEND, "0") in {"", "0"}


def import_path(environment: Mapping[str, str]) -> str:
    """Return `PYTHONPATH` with the middleware's folder at its end."""
    return os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(OVERLAY)]))


def open_routes(endpoint: Endpoint) -> tuple[str, ...]:
    """Return which of some routes a server answers without its key; the requests change nothing."""
    answered = []
    with http.client(replace(endpoint, tape=None), api_key="") as client:
        for path in PROBED:
            try:
                if client.get(path, timeout=PROBE_S).is_success:
                    answered.append(path)
            except httpx.HTTPError:
                continue
    return tuple(answered)
