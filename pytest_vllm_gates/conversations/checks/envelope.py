"""Checks the id, the time and the usage of an answer.

Source: https://platform.openai.com/docs/api-reference/chat/object: `id` is unique, `created` is in
seconds since 1970, `total_tokens` is the sum of prompt and completion, `cached_tokens` is a part of
the prompt's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.client.untyped import record, shown
from pytest_vllm_gates.conversations.checks import events, shared_ids
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.client.answer import Exchange, Recording

Body = dict[str, Any]
FIRST_CREATED, LAST_CREATED = 1_577_836_800, 4_102_444_800
"""Seconds since 1970 for 2020 and 2100: a server's clock may be wrong, but not by that much."""


def findings(exchanges: Sequence[Exchange]) -> list[Finding]:
    """Return the faults of the metadata in these exchanges."""
    found = []
    named: list[tuple[object, Case]] = []
    for exchange in exchanges:
        for mode, bodies in _answers(exchange):
            found += [Finding(exchange.case, f"{mode}: {each}") for each in _faults(bodies)]
            named.append((bodies[0].get("id"), exchange.case))
    return [*found, *shared_ids.of_answers(named)]


def _answers(exchange: Exchange) -> Iterator[tuple[str, list[Body]]]:
    """Yield the whole answer, and the chunks of the stream, unchanged."""
    for mode, bodies in (
        ("whole", _whole(exchange.body)),
        ("streamed", events.chunks(exchange.stream)),
    ):
        if bodies:
            yield mode, bodies


def _whole(recording: Recording) -> list[Body]:
    try:
        body = syntax.json_value(recording.body.decode("utf-8", "replace"))
    except syntax.BadSyntaxError:
        return []
    return [body] if isinstance(body, dict) else []


def _faults(bodies: Iterable[Body]) -> Iterator[str]:
    yield from dict.fromkeys(each for body in bodies for each in faults(body))


def faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults in time and usage of a chat, a completion or a response."""
    for name in ("created", "created_at"):
        created = body.get(name)
        if isinstance(created, int | float) and not FIRST_CREATED < created < LAST_CREATED:
            yield f"{name} is {shown(created)}: expected seconds since 1970"
    for given, made in (("prompt", "completion"), ("input", "output")):
        yield from _usage(record(body.get("usage")), given, made)


def _usage(usage: Mapping[str, Any], given: str, made: str) -> Iterator[str]:
    counts = [usage.get(f"{name}_tokens") for name in (given, made, "total")]
    prompt, completion, total = (count if isinstance(count, int) else -1 for count in counts)
    if -1 in (prompt, completion, total):
        return  # the check of types reports the missing field
    if prompt + completion != total:
        yield f"usage has {prompt} and {completion} tokens, and {total} in all"
    yield from _details(usage, given, "cached_tokens", prompt)
    yield from _details(usage, made, "reasoning_tokens", completion)


def _details(usage: Mapping[str, Any], of: str, name: str, most: int) -> Iterator[str]:
    count = record(usage.get(f"{of}_tokens_details")).get(name)
    if isinstance(count, int) and not 0 <= count <= most:
        yield f"usage has {count} {name} of {most} {of}_tokens"
