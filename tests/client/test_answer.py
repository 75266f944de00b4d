"""What a client reads of an answer."""

from __future__ import annotations

from pytest_vllm_gates.client.answer import Answer, ToolCall, Usage


def test_an_answer_is_told_without_its_tokens() -> None:
    call = ToolCall("look_up", "{}", "call-1")
    answer = Answer("Hm.", " ", (call,), "stop", Usage(1, 2), token_ids=(5,), delta_tokens=(1,))
    found = answer.as_evidence()
    assert not {"token_ids", "delta_tokens"} & found.keys()
    assert (found["reasoning"], found["finish_reason"]) == ("Hm.", "stop")
    assert found["usage"] == {"prompt_tokens": 1, "completion_tokens": 2}
    assert found["tool_calls"][0]["name"] == "look_up"
    assert not answer.has_text
