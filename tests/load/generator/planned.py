"""Requests of a load, for tests of the generator."""

from __future__ import annotations

import json

from servers.raw import CHAT, Timetable

from pytest_vllm_gates.load.types import PlannedRequest

STREAMS = 16
CHUNKS = 10
TOKENS = 2
"""In each chunk."""
TIMETABLE = Timetable(STREAMS, every_s=0.03, fewest_tokens=TOKENS, most_tokens=TOKENS)


def planned_requests(
    count: int, every_s: float | None = None, path: str = "/v1/x", body: bytes = b"{}"
) -> list[PlannedRequest]:
    return [
        PlannedRequest(str(number), path, body, None if every_s is None else number * every_s)
        for number in range(count)
    ]


def planned_chats(every_s: float | None = None) -> list[PlannedRequest]:
    """Return a chat for each stream of the timetable."""
    options = {"continuous_usage_stats": True}
    body = {"stream": True, "max_tokens": CHUNKS * TOKENS, "stream_options": options}
    return planned_requests(STREAMS, every_s, CHAT, json.dumps(body).encode())
