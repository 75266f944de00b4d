"""A prompt as some template and tokenizer made it."""

from __future__ import annotations

from dataclasses import dataclass

RENDER_LIMIT_S = 10.0
AGAIN_LIMIT_S = 1.0
"""What the next conversation is given after one that did not come to an end."""


class Refused(Exception):  # noqa: N818 - a decision of the template, which may be right
    """The template refuses a conversation; the text is its own."""


class Endless(AssertionError):  # noqa: N818 - what was found, told to a person
    """Rendering a conversation does not come to an end in the time it is given."""


@dataclass(frozen=True)
class Rendering:
    """A prompt: its text, its token ids, and the piece of the text each id stands for."""

    text: str
    token_ids: tuple[int, ...]
    pieces: tuple[str, ...]
