"""Asks a server for everything clients and dashboards rely on, several requests at a time."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.chat import SAMPLING
from pytest_vllm_gates.contracts import metric_families
from pytest_vllm_gates.contracts.types import ContractReply, Observed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.contracts.types import ContractPlan, ContractRequest, Mistake

AT_A_TIME = 8
LIMIT_S = 180.0
"""How long one answer may take, on a machine that has other things to do."""
WRONG_KEY = "no-such-key"
SHOWN = 200
GENERATING = "/v1/"
METHODS = frozenset({"get", "put", "post", "delete", "patch"})


class ContractClient:
    """Asks one server everything of a plan; nothing is retried."""

    def __init__(
        self,
        endpoint: Endpoint,
        family: Family,
        plan: ContractPlan,
        conversations: Sequence[Conversation],
        max_tokens: int,
    ) -> None:
        """`max_tokens` is what an answer may have at most, whatever the plan allows."""
        self._endpoint = endpoint
        self._family = family
        self._plan = plan
        self._conversations = {conversation.name: conversation for conversation in conversations}
        self._max_tokens = min(max_tokens, plan.max_tokens)
        self._not_asked: dict[str, str] = {}

    def observe(self) -> Observed:
        """Ask, and look at the metrics last: some come only when there is something to tell."""
        begun = time.monotonic()
        context = http.context(self._endpoint, self._family.context.planned)
        answers, mistakes = self._answers(), list(self._mistakes())
        keys = {"right": None, "wrong": WRONG_KEY, "none": ""}
        clients = {name: http.client(self._endpoint, api_key=key) for name, key in keys.items()}
        client = clients["right"]
        try:
            with ThreadPoolExecutor(AT_A_TIME) as pool:
                listed = pool.submit(_listed, client)
                answered = pool.map(lambda item: _answer(client, *item), answers)
                refused = pool.map(
                    lambda item: _refusal(clients[item.key], self._endpoint.model, item, context),
                    mistakes,
                )
                found = pool.map(lambda item: self._there(client, item), self._plan.routes)
                replies, refusals, there = [*answered], [*refused], [*found]
            routes = _joined(listed.result(), dict(zip(self._plan.routes, there, strict=True)))
        finally:
            for entry in clients.values():
                entry.close()
        return Observed(
            routes=routes,
            listed=listed.result() is not None,
            metrics=metric_families.told(self._endpoint),
            answers=tuple(replies),
            refusals=tuple(refusals),
            model=self._endpoint.model,
            not_asked=self._not_asked,
            requests=len(replies) + len(refusals) + len(there) + 2,
            seconds=round(time.monotonic() - begun, 1),
        )

    def _answers(self) -> list[tuple[ContractRequest, dict[str, Any] | None]]:
        """Return what is asked, with the body to send: all that the family can have."""
        found: list[tuple[ContractRequest, dict[str, Any] | None]] = []
        why_not: dict[str, str] = {}
        for answer in self._plan.answers:
            body: dict[str, Any] = {"model": self._endpoint.model}
            if answer.path.startswith(GENERATING):
                body |= {**SAMPLING, "max_tokens": self._max_tokens}
            if answer.conversation:
                conversation = self._conversations[answer.conversation]
                if reason := conversation.why_not(self._family):
                    why_not[answer.name] = reason
                    continue
                body |= conversation.body(self._family)
            found.append((answer, None if answer.method == "GET" else {**body, **answer.body}))
        sent = {request.name for request, _ in found}
        self._not_asked |= {name: why for name, why in why_not.items() if name not in sent}
        return found

    def _mistakes(self) -> Iterator[Mistake]:
        for mistake in self._plan.mistakes:
            if mistake.key == "right" or self._endpoint.api_key:
                yield mistake
            else:
                self._not_asked[mistake.name] = "the server is used without a key"

    def _there(self, client: httpx.Client, route: str) -> bool | None:
        """Return whether a route is there; None where nothing came back."""
        method, _, path = route.partition(" ")
        body = None if method == "GET" else {"model": self._endpoint.model}
        try:
            return client.request(method, path, json=body).status_code not in http.HIDDEN
        except httpx.HTTPError:
            return None


def _listed(client: httpx.Client) -> dict[str, frozenset[str]] | None:
    """Return the methods of every path (`GET /openapi.json`), None where that is hidden."""
    try:
        paths = client.get("/openapi.json").raise_for_status().json()["paths"]
        return {
            str(path): frozenset(method.upper() for method in methods if method in METHODS)
            for path, methods in paths.items()
        }
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _joined(
    listed: Mapping[str, frozenset[str]] | None, there: Mapping[str, bool | None]
) -> dict[str, frozenset[str]]:
    """Return the routes: what was asked for itself says more than any list of them."""
    found = {path: set(methods) for path, methods in (listed or {}).items()}
    for route, is_there in there.items():
        method, _, path = route.partition(" ")
        if is_there:
            found.setdefault(path, set()).add(method)
        elif is_there is False:
            found.get(path, set()).discard(method)
    return {path: frozenset(methods) for path, methods in found.items() if methods}


def _answer(
    client: httpx.Client, asked: ContractRequest, body: dict[str, Any] | None
) -> ContractReply:
    request = client.build_request(asked.method, asked.path, json=body, timeout=LIMIT_S)
    told = {"method": asked.method, "path": asked.path, "body": body}
    return _sent(client, request, asked.name, told)


def _refusal(client: httpx.Client, model: str, mistake: Mistake, context: int) -> ContractReply:
    body = mistake.request(model, context)
    data = mistake.text(model, context) if body is None else json.dumps(body).encode()
    path, headers = f"/v1{mistake.path}", {"Content-Type": mistake.content_type}
    request = client.build_request(
        mistake.method, path, content=data, headers=headers, timeout=LIMIT_S
    )
    # What is long stays as it is in the file.
    told = {"method": mistake.method, "path": path, "differs_in": mistake.body}
    return _sent(client, request, mistake.name, told | {"without": list(mistake.without)})


def _sent(
    client: httpx.Client, request: httpx.Request, name: str, told: Mapping[str, Any]
) -> ContractReply:
    try:
        reply = client.send(request)
    except httpx.HTTPError as error:
        return ContractReply(name, None, text=f"{type(error).__name__}: {error}", request=told)
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    text = reply.text
    return ContractReply(name, reply.status_code, kind, _bodies(kind, text), text[:SHOWN], told)


def _bodies(kind: str, text: str) -> tuple[Any, ...] | None:
    """Return the JSON of a body, or of every event of a stream; None where it is no JSON."""
    texts = [text]
    if kind == "text/event-stream":
        lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        texts = [line for line in lines if line != "[DONE]"]
    try:
        return tuple(json.loads(other) for other in texts)
    except (ValueError, RecursionError):
        return None
