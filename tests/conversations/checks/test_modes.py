"""A stream whose deltas have several tokens, as on a busy server, is a separate case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conversations.exchanges import WEATHER, answer, exchange, family
from pytest_vllm_gates.catalog import known_defects
from pytest_vllm_gates.conversations.checks import modes

CHECK = "streamed_answer_equals_the_whole"


@pytest.mark.parametrize(
    ("delta_tokens", "is_known"), [((1, 3), True), ((1, 1), False), ((), False)]
)
def test_a_call_that_a_busy_stream_loses_is_known(
    delta_tokens: tuple[int, ...], *, is_known: bool
) -> None:
    whole = answer("", tool_calls=(WEATHER,))
    lost = replace(whole, tool_calls=(), finish_reason="stop", delta_tokens=delta_tokens)
    asked = exchange(whole, streamed=lost, tools="auto")
    compared = modes.compare([(asked, whole, lost)], ("whole", "streamed"))
    assert len(compared.findings) == 2
    defects = family("deepseek").known_defects
    told = known_defects.sort_findings(CHECK, compared.findings, compared.cases, defects, "0.32.0")
    assert (not told.new) is is_known
