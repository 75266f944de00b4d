"""A streamed answer says what the whole answer says: a gate as a user would write one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.conversations.checks.agreement import differences

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.streaming

ANSWER_TOKENS = 1024


def test_streamed_answer_equals_the_whole(
    question: Conversation, chat: Chat, evidence: Evidence
) -> None:
    whole = chat.whole(question, ANSWER_TOKENS)
    evidence["whole"] = whole.as_evidence()
    streamed = chat.streamed(question, ANSWER_TOKENS)
    evidence["streamed"] = streamed.as_evidence()
    assert whole.usage and streamed.usage, "the server counts no tokens: usage is missing"
    found = differences(whole, streamed)
    assert not found, "streamed and whole answer differ:\n" + "\n".join(found)
