"""A conversation: OpenAI messages and tools, read from `conversations/<name>.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import outside, toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.family import Family

SHIPPED = Path(__file__).parent.parent / "conversations"
SHAPES = data.FOLDER / "shapes.toml"


class Conversation(toml.Record):
    """Messages and tools as a client sends them, with words that a sane answer contains."""

    name: toml.Name
    title: toml.Sentence
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    thinking: Literal["on", "off", "unset"] = "unset"
    effort: str | None = None
    """The reasoning effort to request, one of the family's."""
    continue_last: bool = False
    """Whether the last message is an answer that the model continues."""
    repeat_last: int = Field(default=1, ge=1, le=1_000_000)
    """How often the last message's text is repeated: a long prompt in a short file."""
    ask: bool = False
    """Whether the gates may request a completion, and not only render the prompt."""
    answer_holds: tuple[str, ...] = ()
    """A sensible answer contains at least one of these words, in any case of letters."""

    @model_validator(mode="after")
    def _says_something(self) -> Conversation:
        if not self.messages:
            raise ValueError("messages is empty: a conversation has at least one message")
        return self

    def body(self, family: Family) -> dict[str, Any]:
        """Return the request as a client sends it, vLLM's extensions of OpenAI's API included.

        `${user}`, `${assistant}`, `${end_of_turn}` and `${stop}` in a text become the family's
        markers, so that one file can quote every family's markers.
        """
        words = family.prompt.words
        messages = [_filled(message, words) for message in self.messages]
        if self.repeat_last > 1:
            messages[-1]["content"] *= self.repeat_last
        body: dict[str, Any] = {"messages": messages}
        if self.tools:
            body["tools"] = list(self.tools)
        if kwargs := family.thinking_kwargs(self.thinking):
            body["chat_template_kwargs"] = kwargs
        if self.effort:
            body["reasoning_effort"] = self.effort
        if self.continue_last:
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return body

    @property
    def has_images(self) -> bool:
        """Whether a message contains an image."""
        return any(
            isinstance(part, dict) and part.get("type") == "image_url"
            for message in self.messages
            if isinstance(message.get("content"), list)
            for part in message["content"]
        )

    def thinks(self, family: Family) -> bool:
        """Return whether the family must think when it answers."""
        thinking = family.thinking
        return thinking is not None and (
            self.thinking == "on" or (self.thinking == "unset" and thinking.default)
        )

    def why_not(self, family: Family) -> str | None:
        """Return why a family cannot have this conversation, or None when it can."""
        thinking = family.thinking
        if self.has_images and family.prompt.image is None:
            return f"{family.name} has no place for images"
        if self.thinking != "unset" and (thinking is None or thinking.switch is None):
            return f"{family.name} has no thinking switch"
        if self.effort and (thinking is None or self.effort not in thinking.efforts):
            return f"{family.name} does not have the reasoning effort {self.effort!r}"
        if self.tools and family.tools is None:
            return f"{family.name} calls no tools"
        if self.tools and thinking is not None and not thinking.with_tools and self.thinks(family):
            return f"{family.name} calls no tools while it thinks"
        return None


class ClientShape(Conversation):
    """A conversation that clients send, to see its prompt."""

    clients: toml.Sentence
    """The clients that send it."""
    reference: str

    @property
    def sent_by(self) -> str:
        """The clients that send it, and a source."""
        return f"{self.clients} ({self.reference})"


class Shapes(toml.Record):
    """The shapes of `shapes.toml`."""

    shapes: tuple[ClientShape, ...]


def shapes() -> tuple[ClientShape, ...]:
    """Return every shape of requests that clients send."""
    return toml.load(SHAPES, Shapes).shapes


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    """Return a copy of `value` with every `${word}` in its texts replaced."""
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(f"${{{word}}}", text)
        return value
    if isinstance(value, list | tuple):
        return [_filled(member, words) for member in value]
    if isinstance(value, dict):
        return {key: _filled(member, words) for key, member in value.items()}
    return value


def load_all(project: Path) -> tuple[Conversation, ...]:
    """Read every conversation; a project's `conversations/*.toml` override by name."""
    files = {
        path.stem: path
        for folder in (SHIPPED, project / "conversations")
        for path in sorted(folder.glob("*.toml"))
    }
    return tuple(
        outside.load(path, Conversation, name=name) for name, path in sorted(files.items())
    )
