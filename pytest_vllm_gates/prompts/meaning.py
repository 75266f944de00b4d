"""Checks a rendered prompt and its stop tokens against the family file, without a golden."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import data
from pytest_vllm_gates.goldens import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.goldens import Rendering
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer

PARSERS = data.FOLDER / "parsers.toml"
TAIL = 60


def missing_markers(family: Family, text: str, roles: Sequence[str]) -> list[str]:
    """Return a sentence for every role marker that a prompt of these roles lacks."""
    markers = {"user": family.prompt.user, "assistant": family.prompt.assistant}
    if family.prompt.system:
        markers["system"] = family.prompt.system
    sentences = []
    for role, marker in markers.items():
        turns = roles.count(role)
        if text.count(marker) < turns:
            sentences.append(
                f"{turns} {role} turns, and {text.count(marker)} times the marker {marker!r}"
            )
    return sentences


def wrong_opening(family: Family, text: str, *, thinks: bool | None) -> str | None:
    """Return the fault of the place where the model is to continue, or None.

    The prompt has to end in the marker of an assistant's turn. If the template opens the thinking
    and the model is to think, the tag that opens it has to follow; if the model is not to think, no
    tag may be open. `thinks` None skips the thinking.
    """
    _, marker, tail = text.rpartition(family.prompt.assistant)
    if not marker:
        return f"the prompt does not open an assistant turn ({family.prompt.assistant!r})"
    if family.prompt.user in tail:
        return f"a user turn follows the last assistant marker: …{text[-TAIL:]!r}"
    thinking = family.thinking
    if thinking is None or thinks is None:
        return None
    opened = tail.count(thinking.open) > tail.count(thinking.close)
    tail_shown = f"the prompt ends in {text[-TAIL:]!r}"
    if thinks and thinking.opened_by == "template" and not opened:
        return (
            f"thinking is on and {thinking.open!r} is not opened, which the template has to do "
            f"(thinking.opened_by in the family file): {tail_shown}"
        )
    if not thinks and opened:
        return f"thinking is off and {thinking.open!r} is left open: {tail_shown}"
    return None


def switch_has_no_effect(family: Family, prompts: Mapping[str, Sequence[int]]) -> str | None:
    """Return how the thinking's switch contradicts the family file, or None.

    `prompts`: the ids of one prompt by the switch's state, `on`, `off` and `unset`.
    """
    thinking = family.thinking
    if thinking is None or prompts["on"] == prompts["off"]:
        return (
            f"{thinking and thinking.switch} on and off give the same prompt: the template reads "
            "another switch"
        )
    default = "on" if thinking.default else "off"
    if prompts["unset"] != prompts[default]:
        return (
            f"with no switch sent the server's prompt is not the one of thinking {default}, the "
            "default in the family file"
        )
    return None


def parser_disagrees(family: Family, parser: str | None) -> str | None:
    """Return how a reasoning parser and the template differ on the default, or None."""
    if family.thinking is None or parser is None:
        return None
    assumed: Mapping[str, bool] = tomllib.loads(PARSERS.read_text(encoding="utf-8"))
    if parser not in assumed or assumed[parser] == family.thinking.default:
        return None
    words = {True: "that the model thinks", False: "that it does not"}
    return (
        f"no switch sent, the reasoning parser {parser!r} assumes {words[assumed[parser]]} and "
        f"the template {words[family.thinking.default]}: whole answers and streamed ones will put "
        "the text in different fields. Send the switch with every request, or set "
        "default_chat_template_kwargs in the lane's [serve]"
    )


def stops_disagree(expected: Mapping[str, Sequence[int]], stops: Collection[int]) -> str | None:
    """Return how a checkpoint's stop ids differ from the family's tokens, or None."""
    unknown = [name for name, ids in expected.items() if len(ids) != 1 or ids[0] not in stops]
    if unknown:
        return (
            f"{', '.join(unknown)} ends an answer of this family, and neither "
            "generation_config.json nor config.json stops there (they stop at "
            f"{sorted(stops)}): answers will run on"
        )
    beyond = set(stops) - {ids[0] for ids in expected.values()}
    if beyond:
        return (
            f"the checkpoint also stops at the ids {sorted(beyond)}, which the family file does "
            "not list: answers that contain them may be cut"
        )
    return None


def wrong_stops(ends: Mapping[str, str | None], expected: Collection[str]) -> list[str]:
    """Return a sentence for every token at which a server wrongly stops or goes on.

    `ends` has by token the finish reason of an answer that begins with it, None for a token that
    the model lacks; at those in `wanted` an answer ends, at the others it goes on.
    """
    sentences = []
    for token, reason in ends.items():
        stops = reason == "stop"
        if token in expected and not stops:
            sentences.append(
                f"the server goes on after {token!r}: answers run on past their end, until the "
                "limit of tokens (is its id in the eos_token_id of the served "
                "generation_config.json, and is that file used?)"
            )
        if token not in expected and stops:
            sentences.append(
                f"the server stops at {token!r}, which ends no answer of this family: answers that "
                "contain it are cut (which eos_token_id of the served generation_config.json "
                "is it?)"
            )
    return sentences


def wrong_refusal(
    body: Mapping[str, Any], refused: Refused, plain: Rendering | Refused
) -> str | None:
    """Return why a refused request should have been rendered, or None if its shape is refused.

    `plain` is the outcome for the same turns with the plainest texts.
    """
    if not isinstance(plain, Refused):
        return (
            f"the template refuses {body} ({refused}) and takes the same turns with plain texts: "
            "a user's text can cause an error"
        )
    if "tools" not in body and all(message["role"] != "system" for message in body["messages"]):
        return (
            "the template refuses turns of user and assistant, which every family takes: "
            f"{body} ({refused})"
        )
    return None


def injected(body: dict[str, Any], family: Family, reference: ReferenceRenderer) -> dict[str, str]:
    """Return for each special token whether a user's text can write it: `open` or `closed`.

    `body` is a request whose last message is a user's text.
    """
    plain = reference.render(body).token_ids
    *earlier, last = body["messages"]
    states = {}
    for marker in family.prompt.special_tokens:
        quoting = {**last, "content": f"{last['content']} {marker} "}
        quoted = reference.render({**body, "messages": [*earlier, quoting]}).token_ids
        ids = reference.token_ids(marker)
        opens = len(ids) == 1 and quoted.count(ids[0]) > plain.count(ids[0])
        states[marker] = "open" if opens else "closed"
    return states


def ids_that_may_stop(family: Family, reference: ReferenceRenderer) -> dict[str, int]:
    """Return the ids of the family's stop tokens and markers, and those of the checkpoint."""
    names = dict.fromkeys((*family.prompt.stop_tokens, *family.markers))
    ids = {name: token_ids[0] for name in names if len(token_ids := reference.token_ids(name)) == 1}
    others = sorted(reference.stop_ids() - set(ids.values()))
    return ids | {f"id {number}": number for number in others}
