"""Observes a server's routes, metrics, answers and errors, which clients and dashboards use."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.chat import SAMPLING
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.contracts import http_requests, metric_families
from pytest_vllm_gates.contracts.types import ContractReply, Observed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.contracts.types import ContractPlan, ContractRequest, Mistake

AT_A_TIME = 8
LIMIT_S = 180.0
"""Seconds that one answer may take, on a busy machine."""
NO_KEY = "the server is used without a key"
WRONG_KEY = "no-such-key"
SHOWN = 200
GENERATING = "/v1/"
METHODS = frozenset({"get", "put", "post", "delete", "patch"})


class ContractClient:
    """Sends every request of a plan to one server; nothing is retried."""

    def __init__(
        self,
        endpoint: Endpoint,
        family: Family,
        plan: ContractPlan,
        conversations: Sequence[Conversation],
        max_tokens: int,
    ) -> None:
        """`max_tokens` limits every answer, whatever the plan allows."""
        self._endpoint = endpoint
        self._family = family
        self._plan = plan
        self._conversations = {conversation.name: conversation for conversation in conversations}
        self._max_tokens = min(max_tokens, plan.max_tokens)
        self._not_asked: dict[str, str] = {}

    def observe(self) -> Observed:
        """Send all requests, then read the metrics: some appear only after they have a value."""
        begun = time.monotonic()
        context = http.context(self._endpoint, self._family.context.planned)
        answers, mistakes = self._answers(), list(self._mistakes())
        if not self._endpoint.api_key:
            keyed = [request.name for request in self._plan.http if request.needs_key]
            self._not_asked |= dict.fromkeys(keyed, NO_KEY)
        keys = {"right": None, "wrong": WRONG_KEY, "none": ""}
        clients = {name: http.client(self._endpoint, api_key=key) for name, key in keys.items()}
        client = clients["right"]
        try:
            with ThreadPoolExecutor(AT_A_TIME) as pool:
                listing = pool.submit(_listed, client)
                answered = pool.map(lambda request: _answer(client, *request), answers)
                refused = pool.map(
                    lambda mistake: _refusal(
                        clients[mistake.key], self._endpoint.model, mistake, context
                    ),
                    mistakes,
                )
                probes = pool.map(lambda route: self._is_served(client, route), self._plan.routes)
                replies, refusals, available = [*answered], [*refused], [*probes]
                protocol = tuple(http_requests.send(self._endpoint, self._plan.http))
            routes = _merged_routes(
                listing.result(), dict(zip(self._plan.routes, available, strict=True))
            )
        finally:
            for open_client in clients.values():
                open_client.close()
        return Observed(
            routes=routes,
            listed=listing.result() is not None,
            metrics=metric_families.fetch(self._endpoint),
            answers=tuple(replies),
            refusals=tuple(refusals),
            model=self._endpoint.model,
            http=protocol,
            not_asked=self._not_asked,
            requests=len(replies) + len(refusals) + len(available) + len(protocol) + 3,
            seconds=round(time.monotonic() - begun, 1),
        )

    def _answers(self) -> list[tuple[ContractRequest, dict[str, Any] | None]]:
        """Return the requests of the plan that fit the family, each with the body to send."""
        requests: list[tuple[ContractRequest, dict[str, Any] | None]] = []
        why_not: dict[str, str] = {}
        for planned_answer in self._plan.answers:
            body: dict[str, Any] = {"model": self._endpoint.model}
            if planned_answer.path.startswith(GENERATING):
                body |= {**SAMPLING, "max_tokens": self._max_tokens}
            if planned_answer.conversation:
                conversation = self._conversations[planned_answer.conversation]
                if reason := conversation.why_not(self._family):
                    why_not[planned_answer.name] = reason
                    continue
                body |= conversation.body(self._family)
            requests.append(
                (
                    planned_answer,
                    None if planned_answer.method == "GET" else {**body, **planned_answer.body},
                )
            )
        planned = {request.name for request, _ in requests}
        self._not_asked |= {name: why for name, why in why_not.items() if name not in planned}
        return requests

    def _mistakes(self) -> Iterator[Mistake]:
        for mistake in self._plan.mistakes:
            if mistake.key == "right" or self._endpoint.api_key:
                yield mistake
            else:
                self._not_asked[mistake.name] = NO_KEY

    def _is_served(self, client: httpx.Client, route: str) -> bool | None:
        """Return whether the server has a route; None without a reply."""
        method, _, path = route.partition(" ")
        body = None if method == "GET" else {"model": self._endpoint.model}
        try:
            return client.request(method, path, json=body).status_code not in http.HIDDEN
        except httpx.HTTPError:
            return None


def _listed(client: httpx.Client) -> dict[str, frozenset[str]] | None:
    """Return the methods of every path (`GET /openapi.json`), None if that is hidden."""
    try:
        with reading("the answer of /openapi.json"):
            paths = client.get("/openapi.json").raise_for_status().json()["paths"]
            return {
                str(path): frozenset(method.upper() for method in methods if method in METHODS)
                for path, methods in paths.items()
            }
    except httpx.HTTPError:
        return None


def _merged_routes(
    listed: Mapping[str, frozenset[str]] | None, probed: Mapping[str, bool | None]
) -> dict[str, frozenset[str]]:
    """Return the routes: a probe of a route overrides the server's list."""
    methods_by_path = {path: set(methods) for path, methods in (listed or {}).items()}
    for route, available in probed.items():
        method, _, path = route.partition(" ")
        if available:
            methods_by_path.setdefault(path, set()).add(method)
        elif available is False:
            methods_by_path.get(path, set()).discard(method)
    return {path: frozenset(methods) for path, methods in methods_by_path.items() if methods}


def _answer(
    client: httpx.Client, planned: ContractRequest, body: dict[str, Any] | None
) -> ContractReply:
    request = client.build_request(planned.method, planned.path, json=body, timeout=LIMIT_S)
    request_shown = {"method": planned.method, "path": planned.path, "body": body}
    return _sent(client, request, planned.name, request_shown)


def _refusal(client: httpx.Client, model: str, mistake: Mistake, context: int) -> ContractReply:
    data = mistake.data(model, context)
    path, headers = f"/v1{mistake.path}", {"Content-Type": mistake.content_type}
    request = client.build_request(
        mistake.method, path, content=data, headers=headers, timeout=LIMIT_S
    )
    # A `repeat` stays as in the file.
    request_shown = {"method": mistake.method, "path": path, "differs_in": mistake.body}
    return _sent(client, request, mistake.name, request_shown | {"without": list(mistake.without)})


def _sent(
    client: httpx.Client, request: httpx.Request, name: str, request_shown: Mapping[str, Any]
) -> ContractReply:
    try:
        reply = client.send(request)
    except httpx.HTTPError as error:
        return ContractReply(
            name, None, text=f"{type(error).__name__}: {error}", request=request_shown
        )
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    text = reply.text
    return ContractReply(
        name, reply.status_code, kind, _bodies(kind, text), text[:SHOWN], request_shown
    )


def _bodies(kind: str, text: str) -> tuple[Any, ...] | None:
    """Return the JSON of a body, or of every event of a stream; None for invalid JSON."""
    documents = [text]
    if kind == "text/event-stream":
        lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        documents = [line for line in lines if line != "[DONE]"]
    try:
        return tuple(json.loads(document) for document in documents)
    except (ValueError, RecursionError):
        return None
