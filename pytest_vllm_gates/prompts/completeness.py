"""Checks that a prompt has the client's texts: once, in order, in the right turn, and nothing else.

Judges a prompt's text by the words that `sent.mark` put into the request; it needs no golden.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.prompts import sent, turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.prompt_format import Drop
    from pytest_vllm_gates.prompts.sent import Piece

ANSWERING = (turns.ASSISTANT, turns.TOOL)
ROLES = {"developer": turns.SYSTEM}
"""Roles for which a prompt does not have a separate turn."""
DATE, DATES = "YYYY-MM-DD", r"\d{4}-\d\d-\d\d"
"""The placeholder of any date in a family's `adds`, and the pattern of a date."""
SHOWN = 80
MOST_OBJECTS = 1000
"""The most JSON values of one prompt that are read."""


def faults(
    pieces: Sequence[Piece], body: Mapping[str, Any], text: str, family: Family
) -> list[str]:
    """Return a sentence for every fault of a prompt.

    `pieces` and the marked `body` are those of `sent.mark`, `text` is the prompt.
    """
    dropped: dict[str, Drop] = {drop.what: drop for drop in family.prompt.drops}
    unknown = set() if family.prompt.names else {sent.NAME}
    if family.thinking is None:
        unknown |= {sent.REASONING, sent.EARLIER_REASONING}
    pieces = [piece for piece in pieces if piece.kind not in unknown]
    expected = [piece for piece in pieces if piece.kind not in dropped]
    kept = [
        piece
        for piece in pieces
        if piece.kind in dropped and not dropped[piece.kind].may_stay and piece.word in text
    ]
    quotes = turns.quotes_markers(body, family)
    lost = lost_pieces(expected, text, None if quotes else family)
    sentences = _missing(expected, lost)
    sentences += [
        f"{piece.title} is in the prompt, but the family file lists it as dropped "
        f"({dropped[piece.kind].reference})"
        for piece in kept
    ]
    present = [piece for piece in expected if piece.word in text]
    sentences += _repeated(present, text)
    sentences += _disordered(present, text)
    if not quotes:
        sentences += _misplaced(present, text, family)
    sentences += _rewritten(present, text, family)
    return [*sentences, *turns.wrong_images(body, text, family), *_not_json(body, text, family)]


def unsent(text: str, pieces: Sequence[Piece], family: Family) -> str | None:
    """Return the text in a prompt without tools that the client did not send, or None."""
    rest = text
    for piece in pieces:
        if piece.kind == sent.NAME:
            rest = re.sub(rf"\w*{piece.word}", " ", rest)
        rest = rest.replace(piece.text.strip() or piece.word, " ")
    markers = [family.prompt.user, family.prompt.assistant, *family.prompt.stop_tokens]
    if family.prompt.system:
        markers.append(family.prompt.system)
    if family.prompt.image:
        markers.append(family.prompt.image)
    words = [*markers, *family.markers, *family.prompt.adds]
    for word in sorted(words, key=len, reverse=True):
        if DATE in word:
            rest = re.sub(re.escape(word).replace(re.escape(DATE), DATES), " ", rest)
        rest = rest.replace(word, " ")
        rest = rest.replace(word.strip(), " ")
    rest = " ".join(rest.split())
    return f"the prompt holds {rest[:SHOWN]!r}, which nobody sent" if rest else None


def begins_twice(text: str, family: Family) -> str | None:
    """Return that the first token of a prompt is doubled, or None."""
    for token in family.prompt.special_tokens:
        if text.startswith(token * 2):
            return (
                f"the prompt begins with {token!r} twice: the template writes it and the "
                "tokenizer adds it"
            )
    return None


def lost_pieces(pieces: Sequence[Piece], text: str, family: Family | None) -> list[Piece]:
    """Return the pieces that are not in a prompt.

    The name of a tool or a parameter has to be there as often as it was sent: in the turns of the
    assistant for calls, elsewhere for declarations. Without a `family` turns are not distinguished.
    """
    lost = [piece for piece in pieces if piece.kind not in sent.SHARED and piece.word not in text]
    begun = [*turns.turns(text, family)] if family else []
    shared: dict[tuple[str, bool], list[Piece]] = {}
    for piece in pieces:
        if piece.kind in sent.SHARED:
            shared.setdefault((piece.word, piece.kind in sent.DECLARED), []).append(piece)
    for (word, declared), members in shared.items():
        places = [found.start() for found in re.finditer(word, text)]
        if begun:
            places = [
                at for at in places if (turns.turn_at(at, begun) in ANSWERING) is not declared
            ]
        lost += members[len(places) :]
    return lost


def _missing(pieces: Sequence[Piece], missing: Sequence[Piece]) -> list[str]:
    """Return a sentence for each missing text, or one for all of a kind."""
    declared = [piece for piece in pieces if piece.kind in sent.DECLARED]
    lost = [piece for piece in missing if piece.kind in sent.DECLARED]
    if declared and len(lost) == len(declared):
        sentences = ["the tools you declared are not in the prompt"]
    else:
        sentences = []
        for tool, group in itertools.groupby(declared, key=lambda piece: piece.tool):
            members = [*group]
            gone = [piece for piece in members if piece in lost]
            if gone and len(gone) == len(members):
                sentences.append(f"the tool {tool!r} is not in the prompt")
            else:
                sentences += [f"{piece.title} is not in the prompt" for piece in gone]
    rest = [piece for piece in missing if piece.kind not in sent.DECLARED]
    return [*sentences, *(f"{piece.title} is not in the prompt" for piece in rest)]


def _repeated(pieces: Sequence[Piece], text: str) -> list[str]:
    return [
        f"{piece.title} is in the prompt {count} times"
        for piece in pieces
        if piece.kind not in sent.SHARED and piece.kind != sent.NAME
        if (count := text.count(piece.word)) > 1
    ]


def _disordered(pieces: Sequence[Piece], text: str) -> list[str]:
    """Return the messages whose texts come after those of the next one.

    A system text is placed by the family, and its order is checked only among system texts.
    """
    sentences = []
    for of_system in (True, False):
        spans: dict[int, tuple[int, int]] = {}
        for piece in pieces:
            if piece.message is None or (piece.kind == sent.SYSTEM) is not of_system:
                continue
            if piece.kind in sent.SHARED or piece.kind == sent.NAME:
                continue
            at = text.index(piece.word)
            first, last = spans.get(piece.message, (at, at))
            spans[piece.message] = (min(first, at), max(last, at))
        for (earlier, (_, ends)), (later, (begins, _)) in itertools.pairwise(sorted(spans.items())):
            if ends > begins:
                sentences.append(
                    f"message {later + 1} comes before message {earlier + 1} has ended"
                )
    return sentences


def _misplaced(pieces: Sequence[Piece], text: str, family: Family) -> list[str]:
    begun = [*turns.turns(text, family)]
    sentences = []
    for piece in pieces:
        if piece.role is None or piece.kind in sent.SHARED or piece.kind == sent.NAME:
            continue
        at = text.index(piece.word)
        inside = turns.turn_at(at, begun)
        role = ROLES.get(piece.role, piece.role)
        if role == turns.SYSTEM and family.prompt.system is None:
            continue  # the beginning of its text is unknown
        if inside != role:
            sentences.append(f"{piece.title} stands in a turn of {inside}")
    return sentences


def _rewritten(pieces: Sequence[Piece], text: str, family: Family) -> list[str]:
    """Return the texts that are in the prompt in a changed form.

    White space around a text may be removed; in JSON a text is escaped once (RFC 8259, 7).
    """
    sentences = []
    plain = {*sent.OF_MESSAGES}
    if family.tools and "results" in family.tools.json_of:
        plain.remove(sent.RESULT)
    for piece in pieces:
        if piece.kind in sent.SHARED or piece.kind == sent.NAME or not piece.text:
            continue
        whole = piece.text.strip()
        forms = [whole]
        if piece.kind not in plain:
            forms.append(json.dumps(whole, ensure_ascii=False)[1:-1])
        if not any(form in text for form in forms):
            at = text.index(piece.word)
            found = text[max(0, at - SHOWN) : at + len(piece.word)]
            sentences.append(
                f"{piece.title} is changed: {whole[-SHOWN:]!r} was sent, and the prompt "
                f"has {found!r}"
            )
    return sentences


def _not_json(body: Mapping[str, Any], text: str, family: Family) -> list[str]:
    """Return which declarations and arguments are in the prompt, but not as the JSON sent."""
    if not family.tools or not family.tools.json_of:
        return []
    sentences = []
    objects = [*_objects(text)]
    if "declarations" in family.tools.json_of:
        for tool in body.get("tools") or ():
            function = tool["function"]
            parameters = function.get("parameters")
            if function["name"] not in text or not parameters:
                continue
            if parameters not in objects:
                sentences.append(
                    f"the parameters of the tool {_bare(function['name'])} are in the prompt, and "
                    "not as the JSON that was sent"
                )
    if {"arguments", "values"} & {*family.tools.json_of}:
        whole = "arguments" in family.tools.json_of
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():
                arguments = _loaded(call["function"].get("arguments")) or {}
                name = call["function"]["name"]
                due = [arguments] if whole else [*arguments.values()]
                due = [value for value in due if isinstance(value, dict | list) and value]
                if name in text and any(value not in objects for value in due):
                    sentences.append(
                        f"the arguments of the call of {_bare(name)} are in the "
                        "prompt, and not as the JSON that was sent"
                    )
    return sentences


def _bare(name: str) -> str:
    return repr(name.rpartition("_")[0])


def _loaded(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return None


def _objects(text: str) -> Iterator[Any]:
    """Yield every object and list of the JSON in a text, nested ones included."""
    decoder = json.JSONDecoder()
    done = 0
    for found in itertools.islice(re.finditer(r"[{\[]", text), MOST_OBJECTS):
        if found.start() < done:
            continue
        with contextlib.suppress(ValueError, RecursionError):
            value, done = decoder.raw_decode(text, found.start())
            yield from _inside(value)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _inside(inner)
    elif isinstance(value, list):
        yield value
        for inner in value:
            yield from _inside(inner)
