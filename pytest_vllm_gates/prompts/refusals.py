"""Explains in a sentence why a template refuses a request, and whether the family expects it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.prompt_format import DecidedRefusal

SENTENCES = {
    r'can only concatenate str \(not "(?:dict|list)"\) to str': (
        "it joins an object to a text, as it is: vLLM passes the arguments of calls as an "
        "object, which `| tojson` writes"
    ),
    r'can only concatenate str \(not "NoneType"\) to str': (
        "it joins a value that was not sent to a text: the content of a call is often null"
    ),
    r"Object of type Undefined is not JSON serializable": ("it writes an unsent value as JSON"),
    r"'([^']+)' is undefined": "it reads {0!r}, which was not sent",
    r"has no attribute '([^']+)'": "it reads {0!r} of a value without it",
}
"""Error messages of Jinja and Python about a template, and their meaning."""


def in_words(refused: str) -> str:
    """Return a refusal as a sentence; the template's own words if it gives a reason itself."""
    for pattern, sentence in SENTENCES.items():
        if found := re.search(pattern, refused):
            return f"{sentence.format(*found.groups())} ({found.group()})"
    return refused


def decided(family: Family, conversation: Conversation) -> DecidedRefusal | None:
    """Return the family file's reason for the refusal of a conversation, or None."""
    for refusal in family.prompt.refuses:
        if refusal.name == conversation.name:
            return refusal
    return None
