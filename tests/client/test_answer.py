"""The parts of an answer that a client reads."""

from __future__ import annotations

from pytest_vllm_gates.client.answer import Answer, ToolCall, Usage


def test_evidence_of_an_answer_has_no_tokens() -> None:
    call = ToolCall("look_up", "{}", "call-1")
    answer = Answer("Hm.", " ", (call,), "stop", Usage(1, 2), token_ids=(5,), delta_tokens=(1,))
    evidence = answer.as_evidence()
    assert not {"token_ids", "delta_tokens"} & evidence.keys()
    assert (evidence["reasoning"], evidence["finish_reason"]) == ("Hm.", "stop")
    assert evidence["usage"] == {"prompt_tokens": 1, "completion_tokens": 2}
    assert evidence["tool_calls"][0]["name"] == "look_up"
    assert not answer.has_text
