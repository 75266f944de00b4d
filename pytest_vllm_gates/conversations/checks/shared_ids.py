"""Finds ids that the answers to different requests share, or calls in them."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.untyped import shown
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.client.answer import Answer

STREAMING = ("stream", "stream_options")


def of_answers(named: Iterable[tuple[object, Case]]) -> Iterator[Finding]:
    """Yield each id that several answers have; `named` are the answers' ids, with their requests.

    The check of types judges an id that is not a text.
    """
    ids = ((each, case) for each, case in named if isinstance(each, str) and each)
    for answer_id, cases, others in _shared(ids):
        sentence = f"its id {shown(answer_id)} is also in {others} other requests' answers"
        yield Finding(cases[0], sentence)


def of_calls(answers: Iterable[tuple[Answer, Case]]) -> Iterator[Finding]:
    """Yield each id that calls in several answers have.

    An id with the tool's name numbers the calls of a conversation, as Kimi's `functions.NAME:0`.
    """
    ids = (
        (call.id, case)
        for answer, case in answers
        for call in answer.tool_calls
        if call.id and call.name not in call.id
    )
    for call_id, cases, others in _shared(ids):
        sentence = f"the id {shown(call_id)} is also a call's id in {others} other answers"
        yield Finding(cases[0], sentence)


def _shared(ids: Iterable[tuple[str, Case]]) -> Iterator[tuple[str, list[Case], int]]:
    """Yield each id of several requests with its cases, and the number of other requests.

    A cache may answer the same request with the same answer, streamed or not.
    """
    cases_of = defaultdict[str, list[Case]](list)
    for each, case in ids:
        cases_of[each].append(case)
    for each, cases in cases_of.items():
        if others := len({_asked(case) for case in cases}) - 1:
            yield each, cases, others


def _asked(case: Case) -> str:
    request = case.request or {}
    return json.dumps({k: v for k, v in request.items() if k not in STREAMING}, sort_keys=True)
