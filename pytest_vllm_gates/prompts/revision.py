"""Describes a checkpoint's template in words, and the changes of another revision."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.conversation import ClientShape, load_all, shapes
from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.prompts import completeness, efforts, marked, refusals, sent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.prompts.marked import MarkedPrompt
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer
    from pytest_vllm_gates.prompts.sent import Piece

TRIVIAL = "plain"
TAIL = 60
SHOWN_LINES = 12


@dataclass(frozen=True)
class Revision:
    """The prompts of one revision of a checkpoint for every conversation and shape."""

    prompts: tuple[MarkedPrompt, ...]
    lost: Mapping[str, list[Piece]]
    """The missing texts of each prompt, by its conversation's name."""
    states: Mapping[str, str]
    """The plainest prompt by the state of the thinking, `on`, `off` and `unset`."""
    special: Mapping[str, tuple[int, ...]]
    """The ids of the family's special tokens and stop tokens."""
    stops: frozenset[int]
    """The ids at which its configuration ends an answer."""

    def kept(self, kind: str) -> tuple[int, int]:
        """Return how many texts of a kind are in their prompts, and how many were sent."""
        of = lost = 0
        for prompt in self.prompts:
            if isinstance(prompt.outcome, Rendering):
                of += _count(prompt.pieces, kind)
                lost += _count(self.lost[prompt.conversation.name], kind)
        return of - lost, of

    def refused(self) -> dict[str, str]:
        """Return why conversations are refused, by their names."""
        return {
            prompt.conversation.name: refusals.in_words(str(prompt.outcome))
            for prompt in self.prompts
            if isinstance(prompt.outcome, Refused)
        }

    def text(self, name: str) -> str:
        """Return a conversation's prompt; '' if it is refused."""
        for prompt in self.prompts:
            if prompt.conversation.name == name and isinstance(prompt.outcome, Rendering):
                return prompt.outcome.text
        return ""

    def unsent(self, family: Family) -> str:
        """Return the text in the plainest prompt that was not sent."""
        for prompt in self.prompts:
            if prompt.conversation.name == TRIVIAL and isinstance(prompt.outcome, Rendering):
                return completeness.unsent(prompt.outcome.text, prompt.pieces, family) or ""
        return ""


def read(family: Family, reference: ReferenceRenderer, project: Path) -> Revision:
    """Render everything; raises `UserError` and `OverLimit` as the reference does."""
    conversations = (*shapes(), *load_all(project))
    trivial = next(one for one in conversations if one.name == TRIVIAL)
    names = dict.fromkeys((*family.prompt.special_tokens, *family.prompt.stop_tokens))
    prompts = marked.render(conversations, family, reference)
    return Revision(
        prompts,
        {
            prompt.conversation.name: completeness.lost_pieces(
                prompt.pieces, prompt.outcome.text, family
            )
            for prompt in prompts
            if isinstance(prompt.outcome, Rendering)
        },
        efforts.plain_states(trivial, family, reference),
        {name: tuple(reference.token_ids(name)) for name in names},
        frozenset(reference.stop_ids()),
    )


def described(revision: Revision, family: Family) -> list[str]:
    """Return the behaviour of a revision, a sentence per line."""
    lines = []
    for kind in _kinds(revision):
        kept, of = revision.kept(kind)
        if kept != of:
            lines.append(f"{kind}: {kept} of {of} are in the prompts")
    lines += [
        f"thinking {state}: the prompt ends in {_end(text, family)!r}"
        for state, text in revision.states.items()
    ]
    lines += [
        f"refuses {_titled(revision, name)}: {why}" for name, why in revision.refused().items()
    ]
    if unsent := revision.unsent(family):
        lines.append(unsent)
    lines += [
        f"{name} is {len(ids)} tokens" for name, ids in revision.special.items() if len(ids) != 1
    ]
    return lines


def changes(old: Revision, new: Revision, family: Family) -> list[str]:
    """Return the changes of the newer revision, a sentence per line; [] for none."""
    lines = [*_kept_otherwise(old, new), *_refused_otherwise(old, new)]
    for state, text in new.states.items():
        before = old.states.get(state, "")
        if (end := _end(text, family)) != _end(before, family):
            lines.append(
                f"thinking {state}: the prompt ends in {end!r}, it was {_end(before, family)!r}"
            )
    if (now := new.unsent(family)) != old.unsent(family):
        lines.append(f"without a system message {now or 'the prompt contains only the sent texts'}")
    lines += [
        f"{name} is token {ids}, it was {old.special.get(name)}"
        for name, ids in new.special.items()
        if ids != old.special.get(name)
    ]
    if new.stops != old.stops:
        lines.append(f"answers stop at the ids {sorted(new.stops)}, it was {sorted(old.stops)}")
    return lines + _worded_otherwise(old, new)


def _end(text: str, family: Family) -> str:
    """Return the end of a prompt, from where the assistant is to continue."""
    _, marker, tail = text.rpartition(family.prompt.assistant)
    return f"{marker}{tail}" if marker else text[-TAIL:]


def _count(pieces: Iterable[Piece], kind: str) -> int:
    return sum(piece.kind == kind for piece in pieces)


def _kinds(revision: Revision) -> list[str]:
    """Return the kinds of sent texts, except for names, for which most formats have no place."""
    kinds = dict.fromkeys(piece.kind for prompt in revision.prompts for piece in prompt.pieces)
    return [kind for kind in kinds if kind != sent.NAME]


def _kept_otherwise(old: Revision, new: Revision) -> list[str]:
    lines = []
    declared = [kind for kind in _kinds(new) if kind in sent.DECLARED]
    for now, before, what in ((new, old, "no longer"), (old, new, "now")):
        absent = not any(now.kept(kind)[0] for kind in declared)
        if declared and absent and any(before.kept(kind)[0] for kind in declared):
            lines.append(f"the tools that are declared are {what} in the prompts")
            declared = []
    for kind in _kinds(new):
        (now_kept, of), (then_kept, _) = new.kept(kind), old.kept(kind)
        if now_kept != then_kept and (kind not in sent.DECLARED or declared):
            lines.append(f"{kind}: {now_kept} of {of} are in the prompts, it was {then_kept}")
    return lines


def _refused_otherwise(old: Revision, new: Revision) -> list[str]:
    before, now = old.refused(), new.refused()
    return [
        *(
            f"refuses {_titled(new, name)} now: {why}"
            for name, why in now.items()
            if name not in before
        ),
        *(f"takes {_titled(new, name)} now" for name in before if name not in now),
    ]


def _worded_otherwise(old: Revision, new: Revision) -> list[str]:
    """Return how many prompts differ at all, and the first one's difference."""
    both = [
        (prompt.conversation.name, before, after)
        for prompt in new.prompts
        if (before := old.text(prompt.conversation.name))
        and (after := new.text(prompt.conversation.name))
    ]
    differing = [entry for entry in both if entry[1] != entry[2]]
    if not differing:
        return []
    name, before, after = min(differing, key=lambda entry: len(entry[2]))
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    shown = [f"    {line}" for line in [*diff][2 : 2 + SHOWN_LINES]]
    count = f"{len(differing)} of {len(both)} prompts differ; the shortest of them, {name}:"
    return [count, *shown]


def _titled(revision: Revision, name: str) -> str:
    for prompt in revision.prompts:
        conversation = prompt.conversation
        if conversation.name == name:
            by = (
                f", sent by {conversation.clients}" if isinstance(conversation, ClientShape) else ""
            )
            return f"{name} ({conversation.title}{by})"
    return name
