"""Plain HTTP to the served family, for requests that the openai client does not cover."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2 as httpx

from pytest_vllm_gates.client import form
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.client.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint

TIMEOUT_S = 60.0
HIDDEN = (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)
CHAT = "/v1/chat/completions"
RENDER = f"{CHAT}/render"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"


def client(endpoint: Endpoint, *, api_key: str | None = None) -> httpx.Client:
    """Return an HTTP client on the server's root; `api_key` overrides the right one.

    The environment's proxy settings are not used: they would redirect loopback traffic.
    """
    return httpx.Client(
        base_url=endpoint.root_url,
        headers=endpoint.request_headers(api_key),
        timeout=TIMEOUT_S,
        trust_env=False,
        transport=transport(endpoint),
    )


def transport(endpoint: Endpoint, *, to_the_end: bool = False) -> Recorder:
    """Return the transport that sends requests to a server and records them on its tape, if any.

    `to_the_end`: responses are read to their end, even if their client leaves early.
    """
    root = urlsplit(endpoint.root_url).path
    return Recorder(
        verify=endpoint.verify if encrypted(endpoint) else None,
        tape=endpoint.tape,
        tape_part=endpoint.tape_part,
        root=root,
        bounds=endpoint.bounds,
        strikes=endpoint.strikes,
        to_the_end=to_the_end,
    )


def encrypted(endpoint: Endpoint) -> bool:
    """Return whether the server is reached over TLS."""
    return endpoint.base_url.lower().startswith("https:")


def post(endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> httpx.Response:
    """Send a body for the endpoint's model to a path of the server and return the answer."""
    with client(endpoint) as http:
        return http.post(path, json={"model": endpoint.model, **body})


def version(endpoint: Endpoint, timeout_s: float = TIMEOUT_S) -> str | None:
    """Return the server's version of vLLM (`GET /version`), None if it does not report one."""
    with client(endpoint) as http:
        try:
            with reading("the answer of /version"):
                reply = http.get("/version", timeout=timeout_s).raise_for_status()
                return str(reply.json()["version"])
        except httpx.HTTPError:
            return None


def detokenize(endpoint: Endpoint, token_ids: Sequence[int]) -> str:
    """Return the server's text for token ids (`POST /detokenize`)."""
    reply = post(endpoint, DETOKENIZE, {"tokens": list(token_ids)}).raise_for_status()
    with reading(f"the answer of {DETOKENIZE}"):
        return form.text(reply.json()["prompt"], "prompt")


def token_ids(endpoint: Endpoint, text: str, *, add_special_tokens: bool = False) -> list[int]:
    """Return the token ids of a plain text (`POST /tokenize`)."""
    body = {"prompt": text, "add_special_tokens": add_special_tokens}
    return _tokens(post(endpoint, TOKENIZE, body))


def recorded(endpoint: Endpoint, body: Mapping[str, Any]) -> Recording:
    """Return the answer to a chat completion request as received on the wire."""
    begun = time.monotonic()
    request = {"model": endpoint.model, **body}
    with client(endpoint) as http, http.stream("POST", CHAT, json=request) as reply:
        pieces = [(time.monotonic() - begun, piece) for piece in reply.iter_raw()]
        return Recording(reply.headers.get("content-type", ""), tuple(pieces))


def effective_sampling(endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the effective sampling parameters of a chat request, None if the server hides them.

    vLLM returns them with the rendered prompt (`POST /v1/chat/completions/render`): its renderer
    always, its server with `--enable-scale-out`.
    """
    reply = post(endpoint, RENDER, body)
    if reply.status_code in HIDDEN:
        return None
    with reading(f"the answer of {RENDER}"):
        return dict(reply.raise_for_status().json()["sampling_params"])


def tokenize(endpoint: Endpoint, body: dict[str, Any]) -> list[int]:
    """Return the token ids of a chat prompt as the server renders it (`POST /tokenize`).

    Raises `httpx.HTTPStatusError` when the server refuses the conversation.
    """
    return _tokens(post(endpoint, TOKENIZE, body))


def _tokens(reply: httpx.Response) -> list[int]:
    with reading(f"the answer of {TOKENIZE}"):
        return form.token_ids(reply.raise_for_status().json()["tokens"], "tokens")


def context(endpoint: Endpoint, planned: int) -> int:
    """Return the tokens of context that the server reports, `planned` if it reports none."""
    with client(endpoint) as connection:
        try:
            with reading("the answer of /v1/models"):
                models = connection.get("/v1/models").raise_for_status().json()["data"]
                lengths = [
                    form.count(model["max_model_len"], "max_model_len")
                    for model in models
                    if model.get("id") == endpoint.model and model.get("max_model_len")
                ]
        except httpx.HTTPError:
            return planned
    return next(iter(lengths), planned)
