"""Prompts by a checkpoint's chat template, applied by transformers on a request as vLLM does."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateSyntaxError

from pytest_vllm_gates.drive.content_format import takes_parts
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.facts.rendering import (
    AGAIN_LIMIT_S,
    RENDER_LIMIT_S,
    Endless,
    Refused,
)
from pytest_vllm_gates.prompts.types import as_served, options_as_served, tools_as_served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint

NAME = "chat template"
SAMPLE = {"messages": [{"role": "user", "content": "a piece of text"}]}


class Template:
    """A checkpoint's chat template, or the one the server is given in its place.

    Raises `UserError` where there is none, and where it cannot render one plain question.
    """

    def __init__(self, checkpoint: Checkpoint, tokenizer: Any, serve: Mapping[str, Any]) -> None:
        """Take it from the tokenizer; `serve` are the server's flags, of which three count here."""
        self._tokenizer = tokenizer
        self._defaults = dict(serve.get("default_chat_template_kwargs") or {})
        if given := serve.get("chat_template"):
            tokenizer.chat_template = _given(given)
        if not tokenizer.chat_template:
            raise UserError(
                f"checkpoint {checkpoint.name} has no chat template: every chat will be refused\n"
                "add chat_template.jinja to it, or set chat_template in the lane's [serve]"
            )
        self._format = serve.get("chat_template_content_format", "auto")
        self._in_parts: dict[bool, bool] = {}
        self._hung = False
        self._try_out(checkpoint)

    def write(self, body: Mapping[str, Any]) -> str:
        """Return the text of a request's prompt.

        Raises `Refused` when the template does, and `Endless` when it does not come to an end.
        """
        tools = tools_as_served(body.get("tools"))
        messages = [
            as_served(message, in_parts=self._takes_parts(with_tools=tools is not None))
            for message in body["messages"]
        ]
        options = options_as_served(body, self._defaults)
        limit_s = AGAIN_LIMIT_S if self._hung else RENDER_LIMIT_S
        try:
            with _limited(limit_s):
                text: str = self._tokenizer.apply_chat_template(
                    messages, tools=tools, tokenize=False, **options
                )
        except TimeoutError as error:
            self._hung = True
            raise Endless(
                "the chat template was still busy with this conversation after "
                f"{limit_s:.0f} s: does it loop?"
            ) from error
        except Exception as error:  # as vLLM does, whatever a template raises
            raise Refused(str(error) or type(error).__name__) from error
        return text

    def sources(self) -> dict[str, bytes]:
        """Return the bytes of the template, by name."""
        return {NAME: str(self._tokenizer.chat_template).encode()}

    def close(self) -> None:
        """Do nothing: nothing is kept open."""

    def _takes_parts(self, *, with_tools: bool) -> bool:
        """Return whether vLLM hands content over in parts; requests with tools may differ."""
        if self._format != "auto":
            return bool(self._format == "openai")
        if with_tools not in self._in_parts:
            chosen = self._tokenizer.get_chat_template(None, tools=[{}] if with_tools else None)
            self._in_parts[with_tools] = takes_parts(chosen)
        return self._in_parts[with_tools]

    def _try_out(self, checkpoint: Checkpoint) -> None:
        """Render one plain question; raises `UserError` when even that cannot be done."""
        try:
            self.write(SAMPLE)
        except Endless as error:
            raise UserError(
                f"checkpoint {checkpoint.name}: the chat template was still busy with one short "
                f"question after {RENDER_LIMIT_S:.0f} s: does it loop?"
            ) from error
        except Refused as refused:
            cause = refused.__cause__
            if isinstance(cause, TemplateSyntaxError):
                raise UserError(
                    f"checkpoint {checkpoint.name}: the chat template has a syntax error in line "
                    f"{cause.lineno}: {cause.message}"
                ) from cause
            raise UserError(
                f"checkpoint {checkpoint.name}: the chat template cannot render one plain "
                f"question: {refused}"
            ) from cause


def _given(template: str) -> str:
    """Return the text of a template given as vLLM takes it: as a file, or itself."""
    path = Path(template)
    try:
        return path.read_text("utf-8") if path.is_file() else template
    except OSError:  # a text too long to be the name of a file
        return template


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` when the block takes longer; only in the main thread can it be done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
