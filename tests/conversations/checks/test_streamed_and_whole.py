"""Every mode is judged; a stream of the same tokens only by the comparison."""

from __future__ import annotations

import pytest

from conversations.exchanges import answer, exchange
from pytest_vllm_gates.client.answer import Answer, Usage
from pytest_vllm_gates.conversations.checks import agreement, finish

NOTHING = "finish_reason is 'stop', and there is neither content nor a call"
TWO = Usage(10, 2)
HERE = answer(usage=TWO, token_ids=(1, 2))
GONE = answer("", usage=TWO, token_ids=(1, 3))
GONE_OF_THE_SAME = answer("", usage=TWO, token_ids=(1, 2))


@pytest.mark.parametrize(
    ("reply", "streamed", "widened", "sentences"),
    [
        (HERE, HERE, HERE, []),
        (GONE, None, None, [NOTHING]),
        (HERE, GONE, None, [f"streamed, of other tokens: {NOTHING}"]),
        (HERE, HERE, GONE, [f"streamed in wide deltas, of other tokens: {NOTHING}"]),
        (HERE, GONE_OF_THE_SAME, GONE_OF_THE_SAME, []),
        (HERE, answer(""), None, []),
        (None, GONE, None, []),
    ],
)
def test_a_stream_of_other_tokens_is_checked_by_itself(
    reply: Answer | None, streamed: Answer | None, widened: Answer | None, sentences: list[str]
) -> None:
    answered = exchange(reply, streamed=streamed, widened=widened)
    assert list(agreement.faults_in_every_mode(answered, finish.empty_stop)) == sentences
