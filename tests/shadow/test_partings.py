"""The first differing token of greedy answers is found as far as the canary counts tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from servers import running

from pytest_vllm_gates.shadow.sessions import plain_session
from pytest_vllm_gates.shadow.tokens import partings
from shadow.shadow_servers import Chats

if TYPE_CHECKING:
    from collections.abc import Sequence


def counted(url: str, pairs: Sequence[tuple[str, str]]) -> list[int | None]:
    """Return the first differing token of each pair, one after the other."""

    async def count() -> list[int | None]:
        tokens = partings.PartingTokens(url, "of-the-canary", plain_session)
        try:
            return [await tokens.before("m", *pair) for pair in pairs]
        finally:
            await tokens.close()

    return asyncio.run(count())


@pytest.mark.parametrize(
    ("first", "second", "tokens"),
    [
        ("It is cold", "It is warm", 2),
        ("It is col", "It is cold", 2),  # within a token
        ("It is", "It is warm", 2),
        ("a", "b", 0),
    ],
)
def test_tokens_before_two_texts_part(first: str, second: str, tokens: int) -> None:
    with running(Chats()) as canary:
        assert counted(canary.url, [(first, second)]) == [tokens]
        assert dict(canary.seen[0][2])["Authorization"] == "Bearer of-the-canary"


def test_a_canary_without_the_route_gets_three_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(Chats()) as canary:
        canary.tokenizes = False
        assert counted(canary.url, [("a", "b")] * 5) == [None] * 5
        assert len(canary.seen) == partings.MOST_FAILURES
        canary.tokenizes = True
        monkeypatch.setattr(partings, "MOST_PAIRS", 2)
        assert counted(canary.url, [("a", "b")] * 3) == [0, 0, None]


def test_a_canary_that_is_gone_costs_no_judgement() -> None:
    assert counted("http://127.0.0.1:9", [("a", "b")]) == [None]
