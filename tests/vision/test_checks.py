"""Faults that the vision gate finds in answers and prompts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_vllm_gates.catalog.vision import Vision
from pytest_vllm_gates.client.answer import Answer, ToolCall, Usage
from pytest_vllm_gates.vision import cases, checks, encodings
from pytest_vllm_gates.vision.seen import RefusedCase, RenderedImages, SeenCase
from pytest_vllm_gates.vision.sizes import ImageSizes
from pytest_vllm_gates.vision.types import Scene

RED = cases.one(Scene("colour", ("red",), 64, 64))
STRIPES = cases.one(Scene("stripes", ("red", "blue", "green")))
PAD = 7
SIZES = ImageSizes("patches", step=32, least_pixels=4096, most_pixels=65536)
WRITTEN = (1, PAD, 2)
DUE = [1, PAD, PAD, PAD, PAD, 2]


def answer(content: str, *calls: str, prompt_tokens: int = 6) -> Answer:
    tool_calls = tuple(ToolCall("order_paint", call) for call in calls)
    return Answer("", content, tool_calls, "stop", Usage(prompt_tokens, 1))


def seen(case: cases.VisionCase = RED, **fields: Any) -> SeenCase:
    body = case.body(encodings.png_url)
    values = {"sizes": ((64, 64),), "whole": answer("red"), **fields}
    return SeenCase(case.name, "picture", case, body, **values)


def says(findings: Any) -> list[str]:
    return [finding.says for finding in findings]


@pytest.mark.parametrize(
    "content", ["red", "Red.", " The square is RED! ", "It is a reddish thing: red"]
)
def test_an_answer_that_names_the_colour_is_right(content: str) -> None:
    assert checks.answer_fault(RED, answer(content)) is None


@pytest.mark.parametrize("content", ["", "blue", "red or blue", "reddish", "a square"])
def test_an_answer_that_names_another_or_none_is_wrong(content: str) -> None:
    fault = checks.answer_fault(RED, answer(content))
    assert fault == f"red is to be seen, and the answer is {content!r}"


def test_the_order_of_words_counts() -> None:
    assert checks.answer_fault(STRIPES, answer("Red, blue and green.")) is None
    assert checks.answer_fault(STRIPES, answer("blue, red, green"))


@pytest.mark.parametrize("content", ["7", "Seven.", "the digit 7"])
def test_digits_may_be_spelled(content: str) -> None:
    assert checks.answer_fault(cases.one(Scene("digit", number=7)), answer(content)) is None


def test_a_call_has_to_contain_the_colour() -> None:
    call = cases.call(Scene("colour", ("red",)))
    assert checks.answer_fault(call, answer("", '{"colour": "red"}')) is None
    fault = checks.answer_fault(call, answer("", '{"colour": "blue"}'))
    assert fault
    assert fault.startswith("red is to be seen, and the call has ")
    assert checks.answer_fault(call, answer("red")) == "no call came, and the answer is 'red'"
    assert checks.answer_fault(call, answer("", "{")) == "the call's arguments are not JSON: '{'"


def test_no_answer_is_a_finding() -> None:
    assert says(checks.answers([seen(whole=None, error="answered 500")])) == ["answered 500"]


def test_a_stream_has_to_be_its_whole_answer() -> None:
    assert not says(checks.streams([seen(streamed=answer(" red\n"))]))
    assert says(checks.streams([seen(streamed=answer("blue", prompt_tokens=5))])) == [
        "content: whole 'red', streamed 'blue'",
        "prompt_tokens: whole 6, streamed 5",
    ]


def test_a_question_without_a_streamed_answer_is_a_finding() -> None:
    assert says(checks.unstreamed([seen()])) == ["no streamed answer came"]
    assert not says(checks.unstreamed([seen(streamed=answer("red")), seen(whole=None)]))


def test_each_image_has_as_many_tokens_as_its_size_makes() -> None:
    assert checks.expected_ids(seen(), WRITTEN, PAD, SIZES) == DUE
    two = seen(sizes=((64, 64), (96, 64)))
    assert checks.expected_ids(two, (PAD, 3, PAD), PAD, SIZES) == [PAD] * 4 + [3] + [PAD] * 6


def test_a_place_has_the_processors_tokens() -> None:
    vision = Vision(pad="<pad>", rule="fixed", tokens=2, written="\n<image>PADS</image>\n")
    two = seen(sizes=((64, 64), (96, 64)))
    sizes = ImageSizes("fixed", most_tokens=2)
    text = checks.expected_text(two, "a<image>b<image>c", "<image>", vision, sizes)
    image = "\n<image><pad><pad></image>\n"
    assert text == f"a{image}b{image}c"
    assert checks.expected_text(two, "a<image>b", "<image>", vision, sizes) == f"a{image}b"
    third = checks.expected_text(two, "<image><image><image>", "<image>", vision, sizes)
    assert third == f"{image}{image}<image>"


def test_the_place_of_a_wrapped_image_has_its_tokens() -> None:
    inside = RenderedImages(tuple(DUE), ((0, 6),), ("a",))
    assert not says(checks.prompts(seen(rendered=inside), DUE, PAD, wrapped=True))
    assert says(checks.prompts(seen(rendered=inside), DUE, PAD))
    late = RenderedImages(tuple(DUE), ((2, 4),), ("a",))
    assert says(checks.prompts(seen(rendered=late), DUE, PAD, wrapped=True)) == [
        "images are placed at [(2, 4)], and their tokens are at [(1, 4)]"
    ]


def test_a_prompt_as_due_has_no_fault() -> None:
    rendered = RenderedImages(tuple(DUE), ((1, 4),), ("a",))
    assert not says(checks.prompts(seen(rendered=rendered), DUE, PAD))


def test_a_prompt_with_other_tokens_is_a_finding() -> None:
    rendered = RenderedImages((1, PAD, PAD, PAD, 2), ((1, 4),), ("a",))
    counted = seen(rendered=rendered, whole=answer("red", prompt_tokens=5))
    assert says(checks.prompts(counted, DUE, PAD)) == [
        "prompt_tokens is 5, and the processor makes 6",
        "the prompt has 5 tokens and the processor makes 6: they differ from token 4 on, "
        "[2] for [7, 2]",
        "images are placed at [(1, 4)], and their tokens are at [(1, 3)]",
    ]


def test_one_image_has_one_identity_and_no_other_has_it() -> None:
    first = seen(rendered=RenderedImages((), (), ("a",)))
    again = replace(first, rendered=RenderedImages((), (), ("b",)))
    other = replace(
        first,
        request=cases.one(Scene("colour", ("blue",))).body(encodings.png_url),
        rendered=RenderedImages((), (), ("a",)),
    )
    assert not says(checks.identities([first, first]))
    assert says(checks.identities([first, again])) == [
        "the same image has another identity than before"
    ]
    assert says(checks.identities([first, other])) == ["two images have the identity 'a'"]


def test_a_question_without_a_picture_is_answered_alike_before_and_after() -> None:
    before = seen(whole=answer("I see no picture."))
    assert not says(checks.unseen(before, before))
    assert not says(checks.unseen(before, seen(whole=answer("There is no picture."))))
    (fault,) = says(checks.unseen(before, seen(whole=answer("red"))))
    assert fault.endswith("it is 'red'")


@pytest.mark.parametrize(
    ("status", "is_error", "afterwards", "expected"),
    [
        (400, True, "", []),
        (422, True, "", []),
        (500, True, "", ["answered 500: 'no'"]),
        (200, False, "", ["answered 200: 'no'"]),
        (0, False, "", ["answered nothing: 'no'"]),
        (400, False, "", ["answered 400 without an error: 'no'"]),
        (400, True, "answered 503", ["afterwards: answered 503"]),
    ],
)
def test_a_refusal_is_an_error_of_the_client(
    status: int, is_error: bool, afterwards: str, expected: list[str]
) -> None:
    refused = RefusedCase("an SVG", "bad file", {}, status, "no", is_error, afterwards)
    assert says(checks.refusals([refused])) == expected
