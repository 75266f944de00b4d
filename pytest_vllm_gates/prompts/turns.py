"""Assigns each place of a prompt to a turn, and finds its images, by the family's markers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.prompts.types import IMAGE_URL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.family_parts import Tools

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
RESULT = r"(?<![A-Z_])RESULT(?![A-Z_])"
"""The word in a family's format of results; a marker may contain it: `[TOOL_RESULTS]`."""


def turns(text: str, family: Family) -> Iterator[tuple[int, str]]:
    """Yield the start and the role of each turn, in order; a tool's result ends in the turn."""
    prompt = family.prompt
    opening = {prompt.user: USER, prompt.assistant: ASSISTANT}
    if prompt.system:
        opening[prompt.system] = SYSTEM
    closing = ""
    if family.tools:
        before, after = re.split(RESULT, family.tools.result, maxsplit=1)
        opening.setdefault(_result_begins(before.partition("NAME")[0], family.tools), TOOL)
        closing = after.strip()
    words = sorted((*opening, *([closing] if closing else [])), key=len, reverse=True)
    around = SYSTEM
    for found in re.finditer("|".join(map(re.escape, filter(None, words))), text):
        word = found.group()
        if word in opening:
            role = opening[word]
            around = around if role == TOOL else role
            yield found.start(), role
        else:
            yield found.end(), around


def turn_at(at: int, begun: Sequence[tuple[int, str]]) -> str:
    """Return the role of a place's turn; text before the first turn is the system's."""
    return next((role for begins, role in reversed(begun) if begins <= at), SYSTEM)


def quotes_markers(body: Mapping[str, Any], family: Family) -> bool:
    """Return whether a text contains the family's own markers, so that turns are ambiguous."""
    words: Collection[str] = {
        marker.strip()
        for marker in (family.prompt.user, family.prompt.assistant, family.prompt.system or "")
        if marker.strip()
    } | set(family.markers)
    said = json.dumps(body["messages"], ensure_ascii=False)
    return any(json.dumps(word, ensure_ascii=False)[1:-1] in said for word in words)


def wrong_images(body: Mapping[str, Any], text: str, family: Family) -> list[str]:
    """Return which images have a missing, surplus or wrong place in the prompt."""
    place = family.prompt.image
    contents = [
        (number, message["content"])
        for number, message in enumerate(body["messages"])
        if isinstance(message.get("content"), list)
    ]
    images = [
        (number, content, at)
        for number, content in contents
        for at, part in enumerate(content)
        if part.get("type") == IMAGE_URL
    ]
    if not images or place is None:
        return []
    count = text.count(place)
    if count != len(images):
        return [f"{len(images)} images were sent, and the prompt has {count} places ({place!r})"]
    sentences = []
    for number, content, at in images:
        begin, end = _around(content, at, text)
        due = sum(part.get("type") == IMAGE_URL for part in content[_texts(content, at)])
        if text[begin:end].count(place) < due:
            sentences.append(
                f"the image of message {number + 1} is not between the texts around it"
            )
    return sentences


def _texts(content: Sequence[Mapping[str, Any]], at: int) -> slice:
    """Return the parts between the nearest text before a part and the nearest one after it."""
    before = max((n for n in range(at) if "text" in content[n]), default=-1)
    after = next((n for n in range(at, len(content)) if "text" in content[n]), len(content))
    return slice(before + 1, after)


def _around(content: Sequence[Mapping[str, Any]], at: int, text: str) -> tuple[int, int]:
    """Return the end of the text before a part in a prompt, and the start of the text after it."""
    within = _texts(content, at)
    begin, end = 0, len(text)
    if within.start > 0:
        before = content[within.start - 1]["text"].strip()
        begin = text.find(before) + len(before)
    if within.stop < len(content):
        after = text.find(content[within.stop]["text"].strip())
        end = after if after >= 0 else end
    return begin, end


def _result_begins(before: str, tools: Tools) -> str:
    """Return the beginning of each of several results: the last marker, or the last line."""
    markers = [marker for marker in tools.markers if marker in before]
    if markers:
        return max(markers, key=before.rindex)
    return before.strip().rpartition("\n")[2]
