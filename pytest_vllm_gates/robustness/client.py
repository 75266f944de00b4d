"""Sends wrong and rare requests, and checks in between whether the server still answers."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.robustness.types import Checkup, Reaction, RobustnessResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.robustness.types import WrongRequest

LIMIT_S = 60.0
"""Time limit of one wrong request; a healthy server refuses the largest in one or two seconds."""
ANSWER_LIMIT_S = 180.0
"""Time limit of an ordinary answer, on a busy machine."""
AT_A_TIME = 12
"""Wrong requests between two checks that the server still answers."""
MESSAGE_KEYS = ("message", "detail")


def send_all(
    endpoint: Endpoint,
    cases: Sequence[WrongRequest],
    more: Mapping[str, Any],
    context: int,
    canary: Callable[[], Completion],
    *,
    step: Callable[[int, int], None] = lambda *_: None,
) -> RobustnessResult:
    """Send every case; call `canary` before, after each dozen, after silence and at the end.

    `more` is added to every request; `step` is called with the number of cases done and in all.
    """
    canary()  # the next one and all later ones find a warm prefix
    healthy = canary()
    reactions: list[Reaction] = []
    checkups: list[Checkup] = []
    batch: list[str] = []
    with http.client(endpoint) as client:
        for case in cases:
            reactions.append(_send(client, endpoint, case, more, context))
            batch.append(case.name)
            step(len(reactions), len(cases))
            silent = reactions[-1].status is None
            if silent or len(batch) == AT_A_TIME or case is cases[-1]:
                checkups.append(Checkup(tuple(batch), canary()))
                batch = []
                if checkups[-1].completion.error:
                    break
    not_asked = tuple(case.name for case in cases[len(reactions) :])
    return RobustnessResult(healthy, tuple(reactions), tuple(checkups), not_asked)


def _send(
    client: httpx.Client,
    endpoint: Endpoint,
    case: WrongRequest,
    more: Mapping[str, Any],
    tokens: int,
) -> Reaction:
    data, model = case.data(endpoint.model, tokens, more), case.named(endpoint.model)
    headers = {"Content-Type": case.content_type} if case.content_type else {}
    begun = time.monotonic()
    try:
        reply = client.request(
            case.method, f"/v1{case.path}", content=data, headers=headers, timeout=LIMIT_S
        )
    except httpx.TimeoutException:
        description = f"no answer within {LIMIT_S:.0f} s"
        return Reaction(case, model, None, None, False, description, time.monotonic() - begun)
    except httpx.HTTPError as error:
        description = f"the connection broke ({type(error).__name__}: {error})"
        return Reaction(case, model, None, None, False, description, time.monotonic() - begun)
    # httpx's stream refers back to the reply: the body would stay until a collection of garbage.
    reply.stream = httpx.ByteStream(b"")
    return Reaction(
        case,
        model,
        reply.status_code,
        _message(reply.text),
        _is_completion(reply.text),
        reply.text[:200],
        time.monotonic() - begun,
    )


def _message(text: str) -> str | None:
    """Return the message of an error body: OpenAI's shape, or a framework's `detail`."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    inner = body.get("error", body)
    places = [inner, body] if isinstance(inner, dict) else [{"message": inner}, body]
    messages: Iterable[Any] = (place.get(key) for place in places for key in MESSAGE_KEYS)
    return next((str(message) for message in messages if message), None)


def _is_completion(text: str) -> bool:
    """Return whether a body is a completion, whole or streamed, and not a disguised error."""
    lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    try:
        bodies = [json.loads(line) for line in lines if line != "[DONE]"] or [json.loads(text)]
    except (ValueError, RecursionError):
        return False
    return all(
        isinstance(body, dict) and isinstance(body.get("choices"), list) and not body.get("error")
        for body in bodies
    )
