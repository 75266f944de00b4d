"""Sends requests through the official clients, `openai` and `anthropic`; keeps the replies."""

from __future__ import annotations

import inspect
import threading
import uuid
from typing import TYPE_CHECKING, Any, ClassVar

import anthropic
import httpx2 as httpx
import openai

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.chat import REQUEST_TIMEOUT_S
from pytest_vllm_gates.client.recorder import HEADER
from pytest_vllm_gates.dialects.types import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    OK,
    RESPONSES,
    STREAM,
    Reply,
    events_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

    Read = Callable[["DialectClient", Mapping[str, Any], str], dict[str, Any]]

COMPLAINT_CHARACTERS = 300
CUT_OFF = (httpx.RemoteProtocolError, httpx.ReadError)
"""The server ended a connection that it had accepted, before its answer was complete."""
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


class DialectClient:
    """The official clients at one endpoint. Failed requests are not retried.

    Safe to use from several threads.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._model = endpoint.model
        self._recorder = http.transport(endpoint, to_the_end=True)
        key = endpoint.api_key or "none"
        shared: dict[str, Any] = {"max_retries": 0, "default_headers": dict(endpoint.headers)}
        options: dict[str, Any] = {
            "trust_env": False, "timeout": REQUEST_TIMEOUT_S, "transport": self._recorder,
        }  # fmt: skip
        self._openai = openai.OpenAI(
            base_url=endpoint.base_url,
            api_key=key,
            http_client=openai.DefaultHttpxClient(**options),
            **shared,
        )
        # vLLM and its gateways read the key from `Authorization`, which is `auth_token` here.
        self._anthropic = anthropic.Anthropic(
            base_url=endpoint.root_url,
            auth_token=key,
            api_key=None,
            http_client=anthropic.DefaultHttpxClient(**options),
            **shared,
        )
        self._lock = threading.Lock()
        self.requests = 0

    def ask(self, dialect: str, mode: str, case: str, request: Mapping[str, Any]) -> Reply:
        """Send a request in a dialect, whole or streamed; a refusal is a reply with another status.

        So is an answer that the server cut off. Raises `httpx.HTTPError` if the server cannot be
        reached.
        """
        with self._lock:
            self.requests += 1
        name = uuid.uuid4().hex
        read = (self._streams if mode == STREAM else self._wholes)[dialect]
        status: int | None = OK
        assembled: dict[str, Any] = {}
        complaint, cut = "", False
        try:
            assembled = read(self, request, name)
        except (openai.APIStatusError, anthropic.APIStatusError) as error:
            status = error.status_code
            # An error in a stream has the status of the stream, which began well.
            complaint = _sentence(error) if status == OK else ""
        except (openai.APIConnectionError, anthropic.APIConnectionError) as error:
            cause = error.__cause__
            if not isinstance(cause, httpx.HTTPError):
                raise
            if not isinstance(cause, CUT_OFF):
                raise cause from None
            cut, complaint = True, _cut_off(cause)
        except CUT_OFF as error:
            cut, complaint = True, _cut_off(error)
        except httpx.HTTPError:
            raise
        except Exception as error:  # noqa: BLE001 - any error of the client
            complaint = _sentence(error)
        recording = self._recorder.take(name)
        if cut and not recording.kind:  # no answer began
            status = None
        streamed = recording.kind.startswith("text/event-stream")
        events, done = events_of(recording.body) if streamed else ((), False)
        return Reply(
            dialect=dialect,
            mode=mode,
            case=case,
            request=request,
            status=status,
            body={} if streamed else _object(recording.body),
            events=events,
            done=done,
            assembled=assembled,
            complaint=complaint,
            cut=cut,
        )

    def _arguments(
        self, method: Callable[..., Any], request: Mapping[str, Any], name: str
    ) -> dict[str, Any]:
        """Return a method's arguments for a request; unknown ones go into the extra body.

        These are vLLM's extensions, and `temperature`, which anthropic 2.x no longer accepts.
        """
        known = inspect.signature(method).parameters
        extra = {key: value for key, value in request.items() if key not in known}
        return {
            "model": self._model,
            **{key: value for key, value in request.items() if key in known},
            "extra_body": extra or None,
            "extra_headers": {HEADER: name},
        }

    def _called(self, method: Callable[..., Any], request: Mapping[str, Any], name: str) -> Any:
        return method(**self._arguments(method, request, name))

    def _chat(self, request: Mapping[str, Any], name: str) -> dict[str, Any]:
        return _json(self._called(self._openai.chat.completions.create, request, name))

    def _completion(self, request: Mapping[str, Any], name: str) -> dict[str, Any]:
        return _json(self._called(self._openai.completions.create, request, name))

    def _completion_stream(self, request: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Assemble a streamed completion: texts are joined, other fields have their last value."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        choice: dict[str, Any] = {"text": "", "finish_reason": None, "token_ids": []}
        usage: dict[str, Any] | None = None
        for chunk in self._called(self._openai.completions.create, {**request, **options}, name):
            usage = _json(chunk.usage) if chunk.usage else usage
            for part in chunk.choices:
                choice["text"] += part.text
                choice["finish_reason"] = part.finish_reason or choice["finish_reason"]
                choice["stop_reason"] = getattr(part, "stop_reason", None)
                choice["token_ids"] += getattr(part, "token_ids", None) or []
        return {"choices": [choice], "usage": usage}

    def _response(self, request: Mapping[str, Any], name: str) -> dict[str, Any]:
        return _json(self._called(self._openai.responses.create, request, name))

    def _response_stream(self, request: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return the response that the client's helper ends with."""
        last: Any = None
        with self._called(self._openai.responses.stream, request, name) as stream:
            for event in stream:
                if event.type in TERMINAL:
                    last = event.response
        if last is None:
            raise RuntimeError(f"the stream ends without any of {', '.join(sorted(TERMINAL))}")
        return _json(last)

    def _message(self, request: Mapping[str, Any], name: str) -> dict[str, Any]:
        return _json(self._called(self._anthropic.messages.create, request, name))

    def _message_stream(self, request: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return the message that the client's helper ends with."""
        with self._called(self._anthropic.messages.stream, request, name) as stream:
            return _json(stream.get_final_message())

    _wholes: ClassVar[dict[str, Read]] = {
        CHAT: _chat, COMPLETIONS: _completion, RESPONSES: _response, MESSAGES: _message,
    }  # fmt: skip
    _streams: ClassVar[dict[str, Read]] = {
        COMPLETIONS: _completion_stream,
        RESPONSES: _response_stream,
        MESSAGES: _message_stream,
    }


def _json(record: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = record.model_dump(mode="json", warnings=False)
    return dumped


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:COMPLAINT_CHARACTERS]


def _cut_off(error: Exception) -> str:
    return f"{_sentence(error)}, for the server ended the connection within its answer"


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = syntax.json_value(data)
    except syntax.BadSyntaxError:
        return {}
    return value if isinstance(value, dict) else {}
