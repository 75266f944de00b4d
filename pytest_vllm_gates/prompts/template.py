"""Writes prompts with a checkpoint's chat template, applied by transformers as vLLM does.

The template is an untrusted program: it runs in a separate process (`worker.py`), with limits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.goldens import Refused
from pytest_vllm_gates.prompts.limits import SECONDS_VARIABLE, SET_BY, TOTAL_LIMIT_S
from pytest_vllm_gates.prompts.types import (
    DEVELOPER,
    Endless,
    OverLimit,
    as_served,
    options_as_served,
    tools_as_served,
    without_developers,
)
from pytest_vllm_gates.prompts.worker import WorkerFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.prompts.limits import RenderLimits
    from pytest_vllm_gates.prompts.worker import RenderWorker

NAME = "chat template"
SAMPLE = {"messages": [{"role": "user", "content": "a piece of text"}]}


class _RefusedInLine(Refused):
    """A refusal, with the line of the template whose syntax is wrong."""

    def __init__(self, text: str, line: int | None) -> None:
        super().__init__(text)
        self.line = line


class Template:
    """A checkpoint's chat template, or the one that the server's flags name.

    Raises `UserError` if there is none, and if it cannot render one plain question.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        worker: RenderWorker,
        serve: Mapping[str, Any],
        limits: RenderLimits,
    ) -> None:
        """Take it from the worker; two of the server's flags `serve` matter here."""
        self._worker = worker
        self._limits = limits
        self._defaults = dict(serve.get("default_chat_template_kwargs") or {})
        template = worker.loaded["template"]
        if not template:
            raise UserError(
                f"checkpoint {checkpoint.name} has no chat template: every chat will be refused\n"
                "add chat_template.jinja to it, or set chat_template in the lane's [serve]"
            )
        if "\0" in template:
            raise UserError(
                f"checkpoint {checkpoint.name}: the chat template has a NUL character at character "
                f"{template.index(chr(0))}; {worker.title}"
            )
        self._knows_developers = any(f"{quote}developer{quote}" in template for quote in "\"'")
        self._format = serve.get("chat_template_content_format", "auto")
        self._in_parts: dict[bool, bool] = {}
        self._hung = False
        self._spent_s = 0.0
        self._try_out(checkpoint)

    def write(self, body: Mapping[str, Any]) -> str:
        """Return the text of a request's prompt.

        Raises `Refused` if the template does, and `OverLimit` if it needs too much; `Endless` is
        the time.
        """
        return self._write(body, "this conversation")

    def takes_parts(self) -> bool:
        """Return whether vLLM passes it content in parts."""
        return self._takes_parts(with_tools=False)

    def sources(self) -> dict[str, bytes]:
        """Return the bytes of the template, by name."""
        return {NAME: self._worker.loaded["template"].encode("utf-8", "surrogatepass")}

    def close(self) -> None:
        """End the template's process."""
        self._worker.close()

    def _write(self, body: Mapping[str, Any], of: str) -> str:
        tools = tools_as_served(body.get("tools"))
        try:
            messages = [
                as_served(message, in_parts=self._takes_parts(with_tools=tools is not None))
                for message in body["messages"]
            ]
            if not self._knows_developers and any(
                message["role"] == DEVELOPER for message in messages
            ):
                messages = without_developers(messages)
            answer = self._request(
                "write",
                messages=messages,
                tools=tools,
                options=options_as_served(body, self._defaults),
            )
        except Endless as error:
            limit_s, self._hung = self._limit_s(), True
            raise Endless(
                f"the chat template was still busy with {of} after {limit_s:g} s: does it loop?"
                f"{SET_BY.format(SECONDS_VARIABLE)}; {self._worker.title}"
            ) from error
        except OverLimit as error:
            raise OverLimit(
                f"the chat template {error}, with {of}; {self._worker.title}"
            ) from error
        except WorkerFailed as error:
            raise Refused(str(error)) from error
        if "refused" in answer:
            raise _RefusedInLine(answer["refused"], answer.get("line"))
        text: str = answer["text"]
        return text

    def _request(self, operation: str, **arguments: Any) -> dict[str, Any]:
        begun = time.monotonic()
        try:
            return self._worker.request(operation, self._limit_s(), **arguments)
        finally:
            self._spent_s += time.monotonic() - begun

    def _limit_s(self) -> float:
        hurried = self._hung or self._spent_s > TOTAL_LIMIT_S
        return self._limits.again_s if hurried else self._limits.seconds

    def _takes_parts(self, *, with_tools: bool) -> bool:
        """Return whether vLLM passes content in parts; requests with tools may differ."""
        if self._format != "auto":
            return bool(self._format == "openai")
        if with_tools not in self._in_parts:
            answer = self._request("content_in_parts", with_tools=with_tools)
            self._in_parts[with_tools] = answer["parts"]
        return self._in_parts[with_tools]

    def _try_out(self, checkpoint: Checkpoint) -> None:
        """Render one plain question; raises `UserError` if even that fails."""
        try:
            self._write(SAMPLE, "one short question")
        except OverLimit as error:
            raise UserError(f"checkpoint {checkpoint.name}: {error}") from error
        except Refused as refused:
            if isinstance(refused, _RefusedInLine) and refused.line is not None:
                raise UserError(
                    f"checkpoint {checkpoint.name}: the chat template has a syntax error in line "
                    f"{refused.line}: {refused}"
                ) from refused
            raise UserError(
                f"checkpoint {checkpoint.name}: the chat template cannot render one plain "
                f"question: {refused}"
            ) from refused
