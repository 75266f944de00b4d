"""Counts the tokens before two texts differ, with the canary's tokenizer (`POST /tokenize`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Callable

OK = 200
MOST_PAIRS = 500
"""How many differing pairs are counted in tokens: more do not improve the median."""
MOST_FAILURES = 3
"""Failures in a row after which no more requests go to a server that lacks the route or is gone."""
ANSWER_S = 10.0


class PartingTokens:
    """Requests the tokens of both texts from the canary, until that fails a few times in a row."""

    def __init__(
        self, root: str, key: str | None, session: Callable[[], aiohttp.ClientSession]
    ) -> None:
        """`root` is the canary's URL without `/v1`; `session` creates a client in the loop."""
        self._root = root
        self._key = key
        self._make = session
        self._session: aiohttp.ClientSession | None = None
        self._failures = self._counted = 0

    async def before(self, model: str, first: str, second: str) -> int | None:
        """Return how many tokens two texts have in common; None if the canary cannot count them."""
        if self._failures >= MOST_FAILURES or self._counted >= MOST_PAIRS:
            return None
        self._counted += 1
        self._session = self._session or self._make()
        try:
            one, other = [await self._tokens(model, text) for text in (first, second)]
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            self._failures += 1
            return None
        self._failures = 0
        pairs = enumerate(zip(one, other, strict=False))
        shorter = min(len(one), len(other))
        return next((place for place, (mine, its) in pairs if mine != its), shorter)

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    async def _tokens(self, model: str, text: str) -> list[int]:
        assert self._session is not None  # noqa: S101 - made by the only caller
        body: dict[str, Any] = {"prompt": text, "add_special_tokens": False}
        if model:
            body["model"] = model
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        async with self._session.post(
            f"{self._root}/tokenize", data=json.dumps(body).encode(), headers=headers,
            timeout=aiohttp.ClientTimeout(total=ANSWER_S),
        ) as reply:  # fmt: skip
            if reply.status != OK:
                raise ValueError(f"status {reply.status}")
            data = await reply.read()
        answer = json.loads(data)
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, list) or not all(isinstance(each, int) for each in tokens):
            raise ValueError("no tokens")
        return tokens
