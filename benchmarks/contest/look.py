"""All contestants look at one server, one after the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import openai

from benchmarks.contest import golden, gsm8k, guidellm, smoke, speed, types, vendor
from benchmarks.contest.asking import Asker, family_of, questions
from benchmarks.contest.types import Look, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.contest.types import Reply, Target

REFERENCE_SPEEDS = speed.NIGHTS


def record(target: Target, speeds: int = REFERENCE_SPEEDS) -> Reference:
    """Record a clean server: the answers, and so many measurements of its speed.

    One measurement before them warms the server up.
    """
    reference = Reference(golden.ask(Asker(target)))
    if speeds:
        speed.measure(target)  # warms it up
    reference.speeds += [speed.measure(target)[0] for _ in range(speeds)]
    return reference


def nothing_answers(why: str) -> dict[str, Look]:
    """Return what all say of a server that did not come up."""
    rivals = [name for name in types.TITLES if name not in (types.SUITE, types.GUIDELLM)]
    return {name: Look(found=True, why=why) for name in rivals}


def look(
    target: Target,
    reference: Reference | None,
    around: Callable[[str], Any] = lambda _: None,
    tokenizer: str = "",
) -> dict[str, Look]:
    """Return what each contestant says; `around` is called with its name before it begins.

    Without a reference, those that compare with one do not look.
    """
    looks: dict[str, Look] = {}
    for name, judge in _contestants(target, reference, tokenizer):
        around(name)
        began = time.monotonic()
        found, why, requests = judge()
        looks[name] = Look(found, why, requests, time.monotonic() - began)
    if types.FIXED in looks and types.NIGHTLY in looks:  # one measurement serves both
        seconds = looks[types.NIGHTLY].seconds
        looks[types.FIXED] = Look(
            looks[types.FIXED].found, looks[types.FIXED].why, looks[types.NIGHTLY].requests, seconds
        )
    around("")
    return looks


Judge = tuple[bool | None, str, int]


def _contestants(
    target: Target, reference: Reference | None, tokenizer: str
) -> Iterator[tuple[str, Callable[[], Judge]]]:
    yield types.HEALTH, lambda: (*smoke.health(target), 1)
    yield types.SMOKE, lambda: _asked(target, smoke.smoke)
    if reference and reference.replies:
        recorded = reference.replies
        replies: dict[str, Reply] = {}
        plain = questions(family_of(target), tools=False).keys() & recorded.keys()
        tools = questions(family_of(target), tools=True)

        def golden_answers() -> Judge:
            asker = Asker(target)
            replies.update(golden.ask(asker))
            return (*golden.judge(replies, recorded), asker.requests)

        def of_task() -> Judge:
            return (
                *gsm8k.judge(
                    {name: reply for name, reply in replies.items() if name in plain},
                    {name: reply for name, reply in recorded.items() if name in plain},
                ),
                0,
            )

        def of_vendor() -> Judge:
            asker = Asker(target)
            asked = asker.ask_all(tools)
            known = {name: reply for name, reply in recorded.items() if name in tools}
            return (*vendor.judge(asked, known), asker.requests)

        yield types.GOLDEN, golden_answers
        yield types.GSM8K, of_task
        yield types.VENDOR, of_vendor
    if reference and reference.speeds:
        history = reference.speeds
        measured: list[float | str] = []

        def measure() -> Judge:
            try:
                value, requests = speed.measure(target)
            except Exception as error:  # noqa: BLE001 - a benchmark that fails is an alarm
                measured.append(type(error).__name__)
                return True, type(error).__name__, speed.REQUESTS
            measured.append(value)
            return (*speed.nightly(value, history), requests)

        def again() -> Judge:
            (value,) = measured
            if isinstance(value, str):
                return True, value, 0
            return (*speed.fixed(value, history), 0)

        yield types.NIGHTLY, measure
        yield types.FIXED, again
    yield types.GUIDELLM, lambda: guidellm.judge(target, tokenizer)


def _asked(target: Target, judge: Callable[[Asker], tuple[bool, str]]) -> Judge:
    asker = Asker(target)
    try:
        return (*judge(asker), asker.requests)
    except openai.OpenAIError as error:
        return True, type(error).__name__, asker.requests
