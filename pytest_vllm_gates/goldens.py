"""Goldens as text: how a rendered prompt is laid out so that a reviewer reads its diff."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Refused(Exception):  # noqa: N818 - a decision of the template, which may be right
    """The template refuses a conversation; the text is the template's message."""


@dataclass(frozen=True)
class Rendering:
    """A prompt: its text, its token ids, and the piece of text of each id."""

    text: str
    token_ids: tuple[int, ...]
    pieces: tuple[str, ...]


VERSION = "golden 1"
FIRST = re.compile(rf"{VERSION}(?![\w.+-])")
OTHER_FIRST = re.compile(r"golden [\w.+-]")
END = "end of golden"
NEWLINE = "↵"
CONFLICTS = ("<<<<<<< ", ">>>>>>> ")
CONTEXT_TOKENS = 8
SHA256_DIGITS = 64
LONG_CHARACTERS = 60_000  # nobody reads a longer prompt to its end
EDGE_LINES = 40
WIDE = 2_000
CONTROL_PICTURES = 0x2400  # the Unicode block whose n-th character pictures control character n
INVISIBLE = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs")
AS_IT_IS = " \u200d"  # a plain space; the joiner inside an emoji


class CorruptGolden(Exception):  # noqa: N818 - a finding that a person reads
    """A golden file that is not whole; the text names the fault."""


def conversation_golden(title: str, found: Rendering | Refused) -> str:
    """Lay out a conversation's result: its prompt, or the template's refusal."""
    if isinstance(found, Refused):
        return refusal_golden(title, str(found))
    return prompt_golden(title, found)


def prompt_golden(title: str, rendering: Rendering) -> str:
    """Lay out a rendering: each line of the prompt, then the ids of its tokens.

    A line ends with the token that contains the line break, so that one changed line of a
    template changes one pair of lines here. Line breaks, tabs and invisible characters are shown.
    """
    lines = [f"{VERSION}: prompt, {len(rendering.token_ids)} tokens: {title}", ""]
    text, ids = "", []
    for piece, token in zip(rendering.pieces, rendering.token_ids, strict=True):
        text += piece
        ids.append(token)
        if "\n" in piece:
            lines += [f"| {visible(text)}", _ids(ids)]
            text, ids = "", []
    if ids:
        lines += [f"| {visible(text)}", _ids(ids)]
    return "\n".join([*_shortened(lines), "", END, ""])


def refusal_golden(title: str, refusal: str) -> str:
    """Lay out the template's refusal of a conversation, with its message."""
    return "\n".join([f"{VERSION}: refusal: {title}", "", visible(refusal), "", END, ""])


def settings_golden(title: str, settings: Mapping[str, Any]) -> str:
    """Lay out settings, one line each."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in sorted(settings.items())]
    return "\n".join([f"{VERSION}: settings: {title}", "", *lines, "", END, ""])


def lock_golden(title: str, parts: Mapping[str, bytes]) -> str:
    """Lay out the SHA-256 of everything a prompt is made from, one line each."""
    lines = [f"{VERSION}: lock: {title}", ""]
    lines += [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in sorted(parts.items())]
    return "\n".join([*lines, "", END, ""])


def changed_parts(recorded: str, now: str) -> list[str]:
    """Return the names whose sums differ between two lock goldens, or that only one of them has."""

    def sums(text: str) -> set[tuple[str, str]]:
        found = set()
        for line in text.splitlines():
            digest, _, name = line.partition("  ")
            if len(digest) == SHA256_DIGITS and name:
                found.add((name, digest))
        return found

    return sorted({name for name, _ in sums(recorded) ^ sums(now)})


def whole(path: Path, data: bytes) -> str:
    """Return the text of a golden's file; raises `CorruptGolden` when it is not a whole golden."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptGolden(
            f"{path} is not UTF-8 text: byte {data[error.start]:#04x} at offset {error.start}"
        ) from error
    if any(line.startswith(CONFLICTS) for line in text.splitlines()):
        raise CorruptGolden(f"{path} contains the conflict markers of an unresolved merge")
    if not FIRST.match(text):
        first = text.splitlines()[0][:40] if text.strip() else "nothing"
        other = OTHER_FIRST.match(text)
        advice = (
            "; another version of pytest-vllm-gates wrote it: use that one, or record it again"
            if other
            else ""
        )
        raise CorruptGolden(f"{path} starts with {first!r}, not with {VERSION!r}{advice}")
    if not text.endswith(f"\n{END}\n"):
        raise CorruptGolden(f"{path} has no last line {END!r}: it was cut short")
    return text


def visible(text: str) -> str:
    """Return text with line breaks, tabs and invisible characters made visible."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character == "\n":
        return NEWLINE
    if character < " ":
        return chr(CONTROL_PICTURES + ord(character))
    if unicodedata.category(character) in INVISIBLE and character not in AS_IT_IS:
        return f"⟨U+{ord(character):04X}⟩"
    return character


def _shortened(lines: list[str]) -> list[str]:
    """Return the lines; the middle of a very long prompt is replaced by its SHA-256."""
    size = sum(map(len, lines))
    if size <= LONG_CHARACTERS:
        return lines
    shown = [line if len(line) <= WIDE else _folded(line) for line in lines]
    if len(shown) <= 2 * EDGE_LINES:
        return shown
    middle = lines[EDGE_LINES:-EDGE_LINES]
    return [
        *shown[:EDGE_LINES],
        f"  … {len(middle)} lines, sha256 {_sha256(middle)}",
        *shown[-EDGE_LINES:],
    ]


def _folded(line: str) -> str:
    return f"{line[:WIDE]} … {len(line)} characters, sha256 {_sha256([line])}"


def _sha256(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _ids(ids: list[int]) -> str:
    return "  " + " ".join(map(str, ids))


def first_difference(expected: Rendering, token_ids: Sequence[int]) -> str | None:
    """Return where token ids first differ from the expected prompt; None when they are equal."""
    wanted = expected.token_ids
    if wanted == tuple(token_ids):
        return None
    at = next(
        (
            i
            for i, (number, other) in enumerate(zip(wanted, token_ids, strict=False))
            if number != other
        ),
        min(len(wanted), len(token_ids)),
    )
    before = visible("".join(expected.pieces[max(0, at - CONTEXT_TOKENS) : at]))
    here = visible("".join(expected.pieces[at : at + CONTEXT_TOKENS])) or "the end"
    ids = list(token_ids[at : at + CONTEXT_TOKENS])
    return (
        f"from token {at} on, after {before!r}: expected {here!r} "
        f"(ids {list(wanted[at : at + CONTEXT_TOKENS])}), found ids {ids or 'none'}; "
        f"{len(wanted)} tokens expected, {len(token_ids)} found"
    )


def disagreement(expected: Rendering | Refused, served: Sequence[int] | Refused) -> str | None:
    """Return how a server's prompt differs from the prompt of the checkpoint's files, or None."""
    if isinstance(expected, Refused):
        if isinstance(served, Refused):
            return None
        return f"the template refuses this conversation ({expected}) and the server renders it"
    if isinstance(served, Refused):
        return f"the server refuses a conversation that the checkpoint's template accepts: {served}"
    difference = first_difference(expected, served)
    if difference is None:
        return None
    return f"the server's prompt differs from the prompt of the checkpoint's template: {difference}"


def prefix_lost(before: Rendering | Refused, after: Rendering | Refused) -> str | None:
    """Return how a conversation's tokens change when turns are added, or None.

    A refused conversation has no tokens to compare; another check judges the refusal. The last
    token may merge with the text after it.
    """
    if isinstance(before, Refused) or isinstance(after, Refused):
        return None
    certain = Rendering(before.text, before.token_ids[:-1], before.pieces[:-1])
    difference = first_difference(certain, after.token_ids[: len(certain.token_ids)])
    if difference is None:
        return None
    return (
        f"added turns change the earlier tokens: {difference}\nThe server recomputes every turn "
        "from there on, because the prefix cache does not contain these tokens."
    )
