"""Decides whether answers follow the pictures, and whether prompts have the expected tokens."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.vision import PADS
from pytest_vllm_gates.outcomes import Finding
from pytest_vllm_gates.vision import questions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_vllm_gates.catalog.vision import Vision
    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.vision.cases import VisionCase
    from pytest_vllm_gates.vision.seen import RefusedCase, SeenCase
    from pytest_vllm_gates.vision.sizes import ImageSizes

SHOWN = 120
CLIENT_ERRORS = range(400, 500)


def seen_words(case: VisionCase, text: str) -> tuple[str, ...]:
    """Return the options of a case's question in a text, in order; digits as digits."""
    options = questions.options(case.kind)
    found = re.findall(r"[a-z]+|\d+", text.lower())
    spelled = dict(zip(questions.DIGIT_WORDS, map(str, range(10)), strict=True))
    return tuple(word for word in (spelled.get(word, word) for word in found) if word in options)


def answer_fault(case: VisionCase, answer: Answer) -> str | None:
    """Return the fault of an answer about the pictures; None if it follows them."""
    if case.calls:
        return _call_fault(case, answer)
    words = seen_words(case, answer.content)
    if words == case.expects:
        return None
    due = ", ".join(case.expects)
    return f"{due} is to be seen, and the answer is {_short(answer.content)}"


def _call_fault(case: VisionCase, answer: Answer) -> str | None:
    (due,) = case.expects
    for call in answer.tool_calls:
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            return f"the call's arguments are not JSON: {_short(call.arguments)}"
        told = arguments.get("colour") if isinstance(arguments, dict) else None
        if told != due:
            return f"{due} is to be seen, and the call has {_short(call.arguments)}"
    if not answer.tool_calls:
        return f"no call came, and the answer is {_short(answer.content)}"
    return None


def answers(seen: Iterable[SeenCase]) -> Iterator[Finding]:
    """Yield the faults of whole answers."""
    for each in seen:
        if each.whole is None:
            yield Finding(each.finding_case, each.error)
        elif fault := answer_fault(each.case, each.whole):
            yield Finding(each.finding_case, fault)


def streams(seen: Iterable[SeenCase]) -> Iterator[Finding]:
    """Yield how streamed answers differ from whole ones."""
    for each in seen:
        if each.whole is None or each.streamed is None:
            continue
        pairs = (
            ("content", each.whole.content.strip(), each.streamed.content.strip()),
            ("tool_calls", _calls(each.whole), _calls(each.streamed)),
            ("finish_reason", each.whole.finish_reason, each.streamed.finish_reason),
            ("prompt_tokens", _prompt_tokens(each.whole), _prompt_tokens(each.streamed)),
        )
        for field, whole, streamed in pairs:
            if whole != streamed:
                says = f"{field}: whole {_short(whole)}, streamed {_short(streamed)}"
                yield Finding(each.finding_case, says)


def unstreamed(seen: Iterable[SeenCase]) -> Iterator[Finding]:
    """Yield which questions have a whole answer and no streamed one."""
    for each in seen:
        if each.whole and each.streamed is None:
            yield Finding(each.finding_case, "no streamed answer came")


def _calls(answer: Answer) -> list[tuple[str, str]]:
    return [(call.name, "".join(call.arguments.split())) for call in answer.tool_calls]


def expected_ids(
    each: SeenCase, template_ids: Sequence[int], pad: int, sizes: ImageSizes
) -> list[int]:
    """Return the tokens of a prompt: the template's, with each image's token as often as due."""
    counts = iter([sizes.tokens(width, height) for width, height in each.sizes])
    return [
        token
        for written in template_ids
        for token in ([written] * next(counts, 1) if written == pad else [written])
    ]


def expected_text(each: SeenCase, text: str, place: str, vision: Vision, sizes: ImageSizes) -> str:
    """Return a prompt's text with the processor's tokens in the `place` of each image."""
    first, *others = text.split(place)
    counts = [sizes.tokens(width, height) for width, height in each.sizes]
    written = [vision.written.replace(PADS, vision.pad * count) for count in counts]
    # A surplus place keeps the template's text; it is found as another token.
    written += [place] * (len(others) - len(written))
    return first + "".join(one + text for one, text in zip(written, others, strict=False))


def image_counts(each: SeenCase, pad: int, sizes: ImageSizes) -> Iterator[Finding]:
    """Yield images whose number of tokens in a prompt differs from that of their sizes."""
    if each.rendered is None:
        return
    counts = [length for _, length in _runs(each.rendered.token_ids, pad)]
    due = [sizes.tokens(width, height) for width, height in each.sizes]
    if counts != due:
        says = f"images have {counts} tokens in the prompt, and the processor makes {due}"
        yield Finding(each.finding_case, says)


def prompts(
    each: SeenCase, due: Sequence[int], pad: int, *, wrapped: bool = False
) -> Iterator[Finding]:
    """Yield the faults of a prompt's tokens; `due` are the reference's.

    If images are `wrapped`, the place of each has other tokens besides its own.
    """
    if each.whole is not None and each.whole.usage:
        counted = each.whole.usage.prompt_tokens
        if counted != len(due):
            says = f"prompt_tokens is {counted}, and the processor makes {len(due)}"
            yield Finding(each.finding_case, says)
    if each.rendered is None:
        return
    if [*each.rendered.token_ids] != [*due]:
        yield Finding(each.finding_case, _parting(each.rendered.token_ids, due))
    runs = [*_runs(each.rendered.token_ids, pad)]
    places = [*each.rendered.places]
    if not (_hold(places, runs) if wrapped else places == runs):
        says = f"images are placed at {places}, and their tokens are at {runs}"
        yield Finding(each.finding_case, says)


def _hold(places: Sequence[tuple[int, int]], runs: Sequence[tuple[int, int]]) -> bool:
    """Return whether each image's place, as start and length, has all of its tokens."""
    return len(places) == len(runs) and all(
        at <= run_at and run_at + run_length <= at + length
        for (at, length), (run_at, run_length) in zip(places, runs, strict=True)
    )


def _runs(token_ids: Sequence[int], pad: int) -> Iterator[tuple[int, int]]:
    at = 0
    for is_pad, run in itertools.groupby(token_ids, key=lambda token: token == pad):
        length = len([*run])
        if is_pad:
            yield at, length
        at += length


def _parting(rendered: Sequence[int], due: Sequence[int]) -> str:
    at = next(
        (n for n, (one, other) in enumerate(zip(rendered, due, strict=False)) if one != other),
        min(len(rendered), len(due)),
    )
    return (
        f"the prompt has {len(rendered)} tokens and the processor makes {len(due)}: they differ "
        f"from token {at} on, {[*rendered[at : at + 4]]} for {[*due[at : at + 4]]}"
    )


def identities(seen: Iterable[SeenCase]) -> Iterator[Finding]:
    """Yield images with two identities, and identities of two images."""
    by_url: dict[str, str] = {}
    by_hash: dict[str, str] = {}
    for each in seen:
        if each.rendered is None:
            continue
        for url, identity in zip(_urls(each), each.rendered.hashes, strict=False):
            if by_url.setdefault(url, identity) != identity:
                yield Finding(each.finding_case, "the same image has another identity than before")
            if by_hash.setdefault(identity, url) != url:
                yield Finding(each.finding_case, f"two images have the identity {identity!r}")


def _urls(each: SeenCase) -> list[str]:
    return [
        part["image_url"]["url"]
        for message in each.request["messages"]
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]


def unseen(before: SeenCase, after: SeenCase) -> Iterator[Finding]:
    """Yield a changed answer to a question without a picture after pictures were sent."""
    for each in (before, after):
        if each.whole is None:
            yield Finding(each.finding_case, each.error)
    if not before.whole or not after.whole:
        return
    # Words of an answer may vary; what the model sees must not.
    first, second = (
        seen_words(each.case, each.whole.content) for each in (before, after) if each.whole
    )
    if first != second:
        says = (
            f"without a picture the answer was {_short(before.whole.content)}, and after others "
            f"had sent pictures it is {_short(after.whole.content)}"
        )
        yield Finding(after.finding_case, says)


def refusals(refused: Iterable[RefusedCase]) -> Iterator[Finding]:
    """Yield the requests that were not refused as expected."""
    for each in refused:
        if each.status not in CLIENT_ERRORS:
            told = f": {_short(each.message)}" if each.message else ""
            yield Finding(each.finding_case, f"answered {each.status or 'nothing'}{told}")
        elif not each.is_error:
            says = f"answered {each.status} without an error: {_short(each.message)}"
            yield Finding(each.finding_case, says)
        if each.afterwards:
            yield Finding(each.finding_case, f"afterwards: {each.afterwards}")


def _prompt_tokens(answer: Answer) -> int | None:
    return answer.usage.prompt_tokens if answer.usage else None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
