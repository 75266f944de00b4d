"""Sends a few requests one by one, and reads the server's metrics before and after them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.contracts import checks_counts
from pytest_vllm_gates.contracts.checks_counts import CountedRequest, CountedTraffic, Series
from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.server import exposition, metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

COMPLETION = "/v1/completions"
TEXT = "The ferry leaves at six, and nobody waits for whoever comes later. "
BLOCKS = 2
"""Blocks of the prefix cache that the long prompt fills, if the context has room for them."""
UNKNOWN_BLOCK = 128
ANSWER_TOKENS = 7
SETTLED_S = 5.0
POLL_S = 0.05
AGAIN = "the same prompt again"
NAMES = (
    checks_counts.PROMPTS, checks_counts.GENERATED, checks_counts.ENDED, checks_counts.QUERIES,
    checks_counts.HITS,
    *(
        f"{name}_{part}"
        for name in (
            checks_counts.TTFT, checks_counts.E2E, checks_counts.PROMPT_LENGTHS,
            checks_counts.ANSWER_LENGTHS,
        )
        for part in ("sum", "count")
    ),
)  # fmt: skip


def measure(endpoint: Endpoint, chat: Mapping[str, Any], context: int) -> CountedTraffic:
    """Send completions and chats one after the other; `chat` is a chat's body.

    Raises `NotApplicable` if the server has no metrics, and `httpx.HTTPError` if it fails.
    """
    if Series(checks_counts.GENERATED) not in _series(endpoint):
        raise NotApplicable(
            f"the server has no {checks_counts.GENERATED} to compare with its answers"
        )
    config = metrics.cache_config(endpoint)
    block = int(config["block_size"]) if config.get("block_size", "").isdigit() else None
    ids = _long(endpoint, min((block or UNKNOWN_BLOCK) * BLOCKS + 1, context // 2))
    exactly: dict[str, Any] = {"max_tokens": ANSWER_TOKENS, "ignore_eos": True, "temperature": 0}
    _rest(endpoint)
    before = _series(endpoint)
    requests = [
        _ask(endpoint, "a prompt of ids", COMPLETION, {"prompt": ids, **exactly}),
        _ask(endpoint, AGAIN, COMPLETION, {"prompt": ids, **exactly}),
        _ask(endpoint, "a chat that is cut short", http.CHAT, {**chat, **exactly}),
        _ask(endpoint, "a chat", http.CHAT, dict(chat)),
    ]
    return CountedTraffic(
        requests=requests,
        before=before,
        after=_settled(endpoint, before, len(requests)),
        caches_prefixes={"True": True, "False": False}.get(config.get("enable_prefix_caching", "")),
        block_tokens=block,
        repeated=AGAIN,
    )


def _rest(endpoint: Endpoint) -> None:
    """Wait until no request is running: requests of earlier clients would be counted, too."""
    deadline = time.monotonic() + SETTLED_S
    with metrics.Metrics(endpoint) as server:
        while server.load().in_flight and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _long(endpoint: Endpoint, tokens: int) -> list[int]:
    """Return the ids of a unique prompt: it begins with the current time."""
    begins = http.token_ids(endpoint, f"{time.time_ns()} ")
    sentence = http.token_ids(endpoint, TEXT)
    repeats = -(-tokens // max(len(sentence), 1))
    return [*begins, *sentence * repeats][:tokens]


def _ask(endpoint: Endpoint, name: str, path: str, body: dict[str, Any]) -> CountedRequest:
    # A gateway must not answer from its cache: the server would not count the request.
    body["user"] = f"gates-{time.time_ns()}"
    begun = time.monotonic()
    reply = http.post(endpoint, path, body).raise_for_status()
    seconds = time.monotonic() - begun
    prompt = body.get("prompt")
    with reading(f"the answer of {path}"):
        answer = reply.json()
        usage, choice = answer["usage"], answer["choices"][0]
        return CountedRequest(
            name=name,
            body=body,
            prompt_ids=len(prompt) if isinstance(prompt, list) else None,
            prompt_tokens=form.count(usage["prompt_tokens"], "prompt_tokens"),
            completion_tokens=form.count(usage["completion_tokens"], "completion_tokens"),
            finish_reason=str(choice["finish_reason"]),
            seconds=seconds,
        )


def _settled(endpoint: Endpoint, before: Mapping[Series, float], due: int) -> dict[Series, float]:
    """Return the series after all requests are counted, which may be after the last answer."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        now = _series(endpoint)
        ended = sum(
            value - before.get(series, 0.0)
            for series, value in now.items()
            if series.name == checks_counts.ENDED
        )
        if ended >= due or time.monotonic() >= deadline:
            return now
        time.sleep(POLL_S)


def _series(endpoint: Endpoint) -> dict[Series, float]:
    """Return the sums of all series over the engines; empty if the server hides its metrics."""
    with http.client(endpoint) as client:
        reply = client.get(exposition.PATH)
    if not reply.is_success:
        return {}
    sums: dict[Series, float] = {}
    for sample in exposition.samples(reply.text, NAMES):
        series = Series(sample.name, sample.labels.get("finished_reason", ""))
        sums[series] = sums.get(series, 0.0) + sample.value
    return sums
