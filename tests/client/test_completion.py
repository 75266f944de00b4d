"""A server's answer as shown in a sentence."""

from __future__ import annotations

from typing import Any

from pytest_vllm_gates.client.completion import SHOWN, Completion, _put_together


def test_reasoning_and_content_are_shown_shortened() -> None:
    assert Completion("Hm.", "Paris.").shown == repr("Hm.\nParis.")
    assert Completion(content="Paris.").shown == "'Paris.'"
    assert Completion(content="x" * SHOWN).shown == repr("x" * SHOWN)
    assert Completion(content="x" * (SHOWN + 1)).shown == repr("x" * (SHOWN - 1) + "…")


def test_the_error_is_shown_in_place_of_an_answer() -> None:
    assert (
        Completion(content="Par", error="the connection broke off").shown
        == "the connection broke off"
    )


def test_tool_calls_of_a_stream_are_put_together() -> None:
    def delta(*calls: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"delta": {"tool_calls": [*calls]}, "finish_reason": finish}]}

    streamed = [
        delta({"index": 0, "function": {"name": "get_weather", "arguments": '{"city": '}}),
        delta({"index": 1, "function": {"name": "get_time", "arguments": "{}"}}),
        delta({"index": 0, "function": {"arguments": '"Paris"}'}}, finish="tool_calls"),
    ]
    calls = (("get_weather", '{"city": "Paris"}'), ("get_time", "{}"))
    assert _put_together(streamed, {}).calls == calls
    whole = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    answer = _put_together([{"choices": [{"message": {"tool_calls": whole}}]}], {})
    assert answer.calls == calls
    assert answer.shown == repr('get_weather {"city": "Paris"}\nget_time {}')
