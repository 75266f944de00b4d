"""Whose turn each place of a prompt is in, by the markers of the family."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.family import Family, Tools

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
RESULT = r"(?<![A-Z_])RESULT(?![A-Z_])"
"""The word in a family's format of results; a marker may hold it as a part, `[TOOL_RESULTS]`."""


def turns(text: str, family: Family) -> Iterator[tuple[int, str]]:
    """Yield where each turn begins and whose it is, in order; a tool's result ends in the turn."""
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
    """Return whose turn a place is in; what comes before the first turn is the system's."""
    return next((role for begins, role in reversed(begun) if begins <= at), SYSTEM)


def quotes_markers(body: Mapping[str, Any], family: Family) -> bool:
    """Return whether somebody writes the family's own markers, so that no turn can be told."""
    words: Collection[str] = {
        marker.strip()
        for marker in (family.prompt.user, family.prompt.assistant, family.prompt.system or "")
        if marker.strip()
    } | set(family.markers)
    said = json.dumps(body["messages"], ensure_ascii=False)
    return any(json.dumps(word, ensure_ascii=False)[1:-1] in said for word in words)


def _result_begins(before: str, tools: Tools) -> str:
    """Return what each of several results begins with: the last marker, or the last line."""
    markers = [marker for marker in tools.markers if marker in before]
    if markers:
        return max(markers, key=before.rindex)
    return before.strip().rpartition("\n")[2]
