"""Responses that a server stores: retrieved, continued by their id, and cancelled.

https://platform.openai.com/docs/guides/conversation-state
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.form import Malformed, reading, text
from pytest_vllm_gates.client.untyped import shown
from pytest_vllm_gates.dialects import responses
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2 as httpx

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.endpoint import Endpoint

NEXT = "And of which country is Oslo the capital?"
RESULT = '{"sky": "snow", "celsius": -4}'
LONG_TOKENS = 2000
LONGEST_ID = 500
ERROR_CHARACTERS = 200


class NotStored(Exception):  # noqa: N818 - a reason to leave the check out
    """The server does not store responses."""


@dataclass(frozen=True)
class StoredResponse:
    """A response that was stored, and the chat it answered."""

    chat: Mapping[str, Any]
    body: Mapping[str, Any]
    answer: Answer

    @property
    def path(self) -> str:
        """The path at which it can be retrieved."""
        return path_of(self.body)


def path_of(response: Mapping[str, Any]) -> str:
    """Return the path of a stored response; raises `Malformed` if its id is not usable."""
    name = text(response["id"], "id")
    if not 0 < len(name) <= LONGEST_ID:
        raise Malformed(f"id is {shown(name)}, and 1 to {LONGEST_ID} characters are expected")
    return f"{responses.PATH}/{quote(name, safe='')}"


class StoredResponses:
    """Requests stored responses and notes their faults."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.cases: list[Case] = []
        self.findings: list[Finding] = []
        self.requests = 0

    def retrieve(self, chat: Mapping[str, Any]) -> StoredResponse:
        """Store the response to a chat and retrieve it; raises `NotStored` if that fails."""
        request = {**responses.request(chat), "store": True}
        stored = self._create(chat, request)
        reply = self._get(stored.path)
        if not reply.is_success:
            raise NotStored(f"{responses.PATH}/ID is answered with {reply.status_code}")
        case = self._case("retrieved", request)
        with reading("a stored response"):
            retrieved = responses.answer(reply.json())
            if reply.json().get("id") != stored.body["id"]:
                self._find(case, f"another response is retrieved: {shown(reply.json().get('id'))}")
        if retrieved != stored.answer:
            self._find(case, f"retrieved {shown(retrieved)}, answered {shown(stored.answer)}")
        return stored

    def continue_(self, stored: StoredResponse) -> None:
        """Continue a stored response with another question, or with its call's result."""
        calls = stored.answer.tool_calls
        messages = [*stored.chat["messages"], _said(stored.answer)]
        follow: list[dict[str, Any]]
        if calls:
            follow = [
                {"type": "function_call_output", "call_id": call.id, "output": RESULT}
                for call in calls
            ]
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": RESULT} for call in calls
            ]
        else:
            follow = [{"type": "message", "role": "user", "content": NEXT}]
            messages.append({"role": "user", "content": NEXT})
        request = {
            **responses.request(stored.chat),
            "store": True,
            "input": follow,
            "previous_response_id": stored.body["id"],
        }
        case = self._case("result" if calls else "continued", request)
        reply = self._post(responses.PATH, request)
        if not reply.is_success:
            self._find(case, f"answered {reply.status_code}: {reply.text[:ERROR_CHARACTERS]}")
            return
        with reading("a continued response"):
            usage = responses.answer(reply.json()).usage
        chat = {**stored.chat, "messages": messages}
        expected = {self._tokens(chat), self._tokens(_without_reasoning(chat))}
        told = usage.prompt_tokens if usage else 0
        if told not in expected:
            near = min(expected, key=lambda count: abs(told - count))
            self._find(case, f"input tokens: the whole chat {near}, {told} ({told - near:+})")

    def cancel(self, chat: Mapping[str, Any]) -> None:
        """Cancel a long response in the background, if the server offers that."""
        request = {
            **responses.request(chat), "store": True, "background": True,
            "max_output_tokens": LONG_TOKENS, "ignore_eos": True,
        }  # fmt: skip
        reply = self._post(responses.PATH, request)
        if not reply.is_success:
            return
        case = self._case("cancelled", request)
        with reading("a response in the background"):
            path = path_of(reply.json())
            if reply.json()["status"] not in {"queued", "in_progress"}:
                self._find(
                    case,
                    f"a response in the background begins {reply.json()['status']!r}",
                )
        for answer in (self._post(f"{path}/cancel", {}), self._get(path)):
            with reading("a cancelled response"):
                status = answer.json().get("status")
            if status != "cancelled":
                self._find(case, f"the status is {status!r} after it was cancelled")

    def _create(self, chat: Mapping[str, Any], request: Mapping[str, Any]) -> StoredResponse:
        reply = self._post(responses.PATH, request)
        if not reply.is_success:
            raise NotStored(f"store is answered with {reply.status_code}")
        with reading("a response"):
            body = reply.json()
            path_of(body)
            return StoredResponse(chat, body, responses.answer(body))

    def _tokens(self, chat: Mapping[str, Any]) -> int:
        names = ("messages", "tools", "chat_template_kwargs")
        self.requests += 1
        body = {name: chat[name] for name in names if name in chat}
        return len(http.tokenize(self._endpoint, body))

    def _post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        self.requests += 1
        return http.post(self._endpoint, path, body)

    def _get(self, path: str) -> httpx.Response:
        self.requests += 1
        with http.client(self._endpoint) as client:
            return client.get(path)

    def _case(self, name: str, request: Mapping[str, Any]) -> Case:
        traits = {"dialect": "responses", "mode": "stored", "case": name}
        case = Case(f"responses stored: {name}", traits, request)
        self.cases.append(case)
        return case

    def _find(self, case: Case, sentence: str) -> None:
        self.findings.append(Finding(case, sentence))


def _said(answer: Answer) -> dict[str, Any]:
    """Return an answer as a message of a chat."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or None}
    if answer.reasoning:
        message["reasoning"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.tool_calls
        ]
    return message


def _without_reasoning(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat without the reasoning of earlier turns, which a server need not keep."""
    messages = [
        {name: value for name, value in message.items() if name != "reasoning"}
        for message in chat["messages"]
    ]
    return {**chat, "messages": messages}
