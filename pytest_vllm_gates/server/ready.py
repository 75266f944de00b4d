"""Checks that a server serves: its health, its alias, and one real chat."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.ready import PROBE_TIMEOUT_S, NotServing, refused, served_models

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.client.endpoint import Endpoint

EMBEDDINGS, CLASSIFY = "/v1/embeddings", "/classify"
NOT_OFFERED = (404, 405, 501)
"""A server's answers if it has no such route, or not for this model."""
FIRST_CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 16,
    "temperature": 0,
    "seed": 0,
    "stream": True,
}


@dataclass(frozen=True)
class FirstChat:
    """One streamed chat: seconds from sending to the first generated token and to the end."""

    first_token_s: float
    total_s: float


def healthy(endpoint: Endpoint, *, by_models: bool = False) -> bool:
    """Return whether `/health` answers 200 and the listed models include ours.

    The alias is new for every boot, so another server on the same port is never mistaken for ours.
    With `by_models`, a server without `/health` is well if it lists the model.
    """
    accepted = {httpx.codes.OK, httpx.codes.NOT_FOUND} if by_models else {httpx.codes.OK}
    try:
        with http.client(endpoint) as client:
            if client.get("/health", timeout=PROBE_TIMEOUT_S).status_code not in accepted:
                return False
            return endpoint.model in served_models(client)
    except (httpx.HTTPError, NotServing):
        return False


def first_chat(endpoint: Endpoint, timeout_s: float) -> FirstChat:
    """Send one streamed chat and wait for its end.

    Raises `NotServing` without an answer, `NotReached` if something before the server answers.
    """
    started = time.monotonic()
    body = {"model": endpoint.model, **FIRST_CHAT}
    try:
        with (
            http.client(endpoint) as client,
            client.stream("POST", http.CHAT, json=body, timeout=timeout_s) as reply,
        ):
            if reply.status_code != httpx.codes.OK:
                reply.read()
                if before := refused(reply.status_code, http.CHAT):
                    raise before
                raise NotServing(
                    f"the first chat was answered {reply.status_code}: {reply.text[:500]}"
                )
            first_token_s = _read(_events(reply.iter_lines()), started, timeout_s)
    except httpx.TimeoutException as error:
        raise NotServing(
            f"the first chat returned nothing for {timeout_s:g} s while /health answered"
        ) from error
    except httpx.HTTPError as error:
        raise NotServing(f"the first chat broke off: {error}") from error
    return FirstChat(first_token_s=first_token_s, total_s=time.monotonic() - started)


def first_answer(endpoint: Endpoint, timeout_s: float, *, pools: bool) -> float:
    """Send one chat, or one text for a vector or class if the family `pools`; return the seconds.

    Raises `NotServing` without an answer, `NotReached` if something before the server answers.
    """
    if not pools:
        return first_chat(endpoint, timeout_s).first_token_s
    started = time.monotonic()
    body = {"model": endpoint.model, "input": FIRST_CHAT["messages"][0]["content"]}
    try:
        with http.client(endpoint) as client:
            path, reply = EMBEDDINGS, client.post(EMBEDDINGS, json=body, timeout=timeout_s)
            if reply.status_code in NOT_OFFERED:  # a model that classifies has no vectors
                path, reply = CLASSIFY, client.post(CLASSIFY, json=body, timeout=timeout_s)
    except httpx.TimeoutException as error:
        raise NotServing(
            f"the first text got no vector for {timeout_s:g} s while /health answered"
        ) from error
    except httpx.HTTPError as error:
        raise NotServing(f"the first text got no vector: {error}") from error
    if reply.status_code != httpx.codes.OK:
        if before := refused(reply.status_code, path):
            raise before
        raise NotServing(f"the first text was answered {reply.status_code}: {reply.text[:500]}")
    return time.monotonic() - started


def first_rendering(endpoint: Endpoint, timeout_s: float) -> None:
    """Have one prompt rendered; raises `NotServing` if that fails."""
    body = {"model": endpoint.model, "messages": FIRST_CHAT["messages"]}
    try:
        with http.client(endpoint) as client:
            reply = client.post("/tokenize", json=body, timeout=timeout_s)
    except httpx.HTTPError as error:
        raise NotServing(f"the first prompt was not rendered: {error}") from error
    if reply.status_code != httpx.codes.OK:
        raise NotServing(f"the first prompt was answered {reply.status_code}: {reply.text[:500]}")


def _read(events: Iterable[dict[str, Any] | None], started: float, timeout_s: float) -> float:
    """Read a chat to its end; return the seconds until its first token."""
    first_token_s: float | None = None
    finished = False
    for event in events:
        if event is None:
            if first_token_s is None:
                raise NotServing("the first chat ended without a single token")
            return first_token_s
        if "error" in event and not event.get("choices"):
            raise NotServing(
                f"the first chat ended in an error: {json.dumps(event['error'])[:500]}"
            )
        finished = finished or _finishes(event)
        waited_s = time.monotonic() - started
        if first_token_s is None and _carries_text(event):
            first_token_s = waited_s
        if waited_s > timeout_s:
            raise NotServing(f"the first chat did not end within {timeout_s:g} s")
    if finished and first_token_s is not None:
        return first_token_s  # without [DONE]: the streaming gate judges that
    raise NotServing(
        "the first chat broke off: the stream stopped before its end, without finish_reason and "
        "[DONE]"
    )


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any] | None]:
    """Yield the events of a stream, None for its end, and empty ones for keep-alive lines."""
    for line in lines:
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            yield None
            return
        try:
            event = json.loads(data) if line.startswith("data:") else {}
        except ValueError as error:
            raise NotServing(f"the first chat returned invalid JSON: {data[:200]!r}") from error
        yield event if isinstance(event, dict) else {}


def _finishes(event: dict[str, Any]) -> bool:
    """Return whether an event has the reason why the answer ends."""
    return any(choice.get("finish_reason") for choice in event.get("choices") or ())


def _carries_text(event: dict[str, Any]) -> bool:
    """Return whether an event has generated text; the first one carries only the role."""
    deltas = [choice.get("delta") or {} for choice in event.get("choices") or ()]
    return any(
        delta.get(key)
        for delta in deltas
        for key in ("content", "reasoning", "reasoning_content", "tool_calls")
    )
