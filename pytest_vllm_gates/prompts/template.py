"""Writes prompts with a checkpoint's chat template, applied by transformers as vLLM does.

vLLM reads the template to decide how it hands content over: a loop over the content of a message,
found through assignments and macros, means that every content is a list of parts, a plain text too
(vllm/renderers/hf.py).
"""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateSyntaxError, nodes

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.goldens import Refused
from pytest_vllm_gates.prompts.types import (
    AGAIN_LIMIT_S,
    RENDER_LIMIT_S,
    Endless,
    as_served,
    options_as_served,
    tools_as_served,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint

CONTENT = "content"
MESSAGES = "messages"


def takes_parts(template: str) -> bool:
    """Return whether a template is handed content in parts; one that cannot be read is not."""
    from transformers.utils import chat_template_utils  # noqa: PLC0415 - slow to import

    try:
        compiled: Any = chat_template_utils._compile_jinja_template(template)  # noqa: SLF001 - vLLM
        root: nodes.Template = compiled.environment.parse(template)
        return any(True for _ in _loops_over_content(root))
    except Exception:  # noqa: BLE001 - vLLM takes it for one that wants texts
        return False


def _loops_over_content(root: nodes.Template) -> Iterator[nodes.For]:
    messages = set(_message_names(root))
    inside: dict[int, set[str]] = {}
    for macro in root.find_all(nodes.Macro):
        parameters = set(_parameters_given_content(root, macro, messages))
        inside |= {id(loop): parameters for loop in macro.find_all(nodes.For)}
    for loop in root.find_all(nodes.For):
        name = loop.iter.name if isinstance(loop.iter, nodes.Name) else None
        # Outside of macros a variable called content is taken for a message's.
        if any(_is_part_of(loop.iter, message, CONTENT) for message in messages) or name in (
            inside.get(id(loop), {CONTENT})
        ):
            yield loop


def _message_names(root: nodes.Template) -> Iterator[str]:
    """Yield the variables of loops over the messages, or over what was made of them."""
    lists = [MESSAGES]
    for known in lists:  # grows meanwhile
        for assigned in root.find_all(nodes.Assign):
            if _is_part_of(assigned.node, known):
                name = _named(assigned.target)
                lists += [name] if name not in lists else []
    for loop in root.find_all(nodes.For):
        if any(_is_part_of(loop.iter, name) for name in lists):
            yield _named(loop.target)


def _parameters_given_content(
    root: nodes.Template, macro: nodes.Macro, messages: set[str]
) -> Iterator[str]:
    """Yield the parameters of a macro to which some call passes a message's content."""
    names = [parameter.name for parameter in macro.args]
    for call in root.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name != macro.name:
            continue
        arguments = [*zip(names, call.args, strict=False)]
        arguments += [
            (keyword.key, keyword.value) for keyword in call.kwargs if keyword.key in names
        ]
        for name, value in arguments:
            if any(_is_part_of(value, message, CONTENT) for message in messages):
                yield name


def _named(target: nodes.Node) -> str:
    """Return a variable's name; of a template that sets anything else vLLM gives up here."""
    if not isinstance(target, nodes.Name):
        raise TypeError(target)
    return target.name


def _is_part_of(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Return whether an expression is a variable or its key, filtered, tested or sliced."""
    if isinstance(node, nodes.Filter | nodes.Test):
        return _is_part_of(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _is_part_of(node.node, name, key)
    if key is not None:
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            return bool(node.arg.value == key) and _is_part_of(node.node, name)
        if isinstance(node, nodes.Getattr):
            return node.attr == key and _is_part_of(node.node, name)
        return False
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name


NAME = "chat template"
SAMPLE = {"messages": [{"role": "user", "content": "a piece of text"}]}


class Template:
    """A checkpoint's chat template, or the one that the server's flags name.

    Raises `UserError` where there is none, and where it cannot render one plain question.
    """

    def __init__(self, checkpoint: Checkpoint, tokenizer: Any, serve: Mapping[str, Any]) -> None:
        """Take it from the tokenizer; `serve` are the server's flags, of which three count here."""
        self._tokenizer = tokenizer
        self._defaults = dict(serve.get("default_chat_template_kwargs") or {})
        if override := serve.get("chat_template"):
            tokenizer.chat_template = _template_text(override)
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


def _template_text(template: str) -> str:
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
