"""Servers that fail at a long context: the long-context gate fails."""

from __future__ import annotations

import re
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from faults.fault import Faults

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("long_context")

COMPLETIONS = "/v1/completions"
CHANGED, SCORED = (
    "prefix_and_company_change_nothing",
    "long_positions_are_scored_as_by_the_reference",
)
LONG = 2000
LIMIT_S = 3.0
"""How long a server may hang in these tests."""
HANG_S = 6.0


def _long(exchange: Exchange) -> bool:
    """Return whether a prompt of token ids is long; the numerics gate's longest is not."""
    prompt = exchange.body.get("prompt")
    return exchange.path == COMPLETIONS and isinstance(prompt, list) and len(prompt) > LONG


def _metrics(exchange: Exchange, name: str, value: float) -> None:
    """Put a value into the server's metrics."""
    if exchange.path == "/metrics" and exchange.text:
        exchange.text = re.sub(
            rf"^({name}(?:{{.*}})?) .*$", rf"\g<1> {value}", exchange.text, flags=re.MULTILINE
        )


@FAULTS.add("request", check="every_length_is_answered", says="a part of it was not read")
def cuts_long_prompts_silently(exchange: Exchange) -> None:
    """A gateway keeps the end of what is too long for it."""
    if _long(exchange) and len(exchange.body["prompt"]) <= LONG * 2:
        exchange.body["prompt"] = exchange.body["prompt"][-LONG:]


@FAULTS.add("request", check="too_long_is_refused", says="answered 200, not refused")
def cuts_what_is_too_long(exchange: Exchange) -> None:
    """A prompt beyond the context is silently cut to it."""
    if _long(exchange) and len(exchange.body["prompt"]) > 4088 - LONG // 1000:
        exchange.body["prompt"] = exchange.body["prompt"][: 4096 - exchange.body["max_tokens"]]


class Life:
    """Whether a server is still there."""

    over = False


@FAULTS.add("request", check="every_length_is_answered", says="no answer")
def dies_at_a_length(exchange: Exchange) -> None:
    """An illegal memory access beyond a length, and nothing answers from then on (vllm#34948)."""
    if exchange.path == "/v1/models":
        Life.over = False  # a new run
    Life.over = Life.over or _long(exchange)
    if Life.over and exchange.path not in ("/metrics", "/version"):
        exchange.cut_after = 0


class Stuck:
    """How many requests hang."""

    count = 0


@FAULTS.add("anything", check="nothing_hangs", says="1 waiting, and no progress for")
def hangs_while_health_is_well(exchange: Exchange) -> None:
    """Requests wait, nothing runs, and every probe answers 200 (vllm#45414)."""
    if _long(exchange):
        Stuck.count += 1
        time.sleep(HANG_S)
        Stuck.count -= 1
    if Stuck.count:
        _metrics(exchange, "vllm:num_requests_running", 0)
        _metrics(exchange, "vllm:num_requests_waiting", 1)


class Seen:
    """The salts whose prefixes are cached."""

    salts: set[str] = set()  # noqa: RUF012 - one run's


@FAULTS.add(
    "anything",
    check=CHANGED,
    says="where the reference's lead was clear",
)
def corrupts_a_long_prefix(exchange: Exchange) -> None:
    """A long prefix comes back from the cache as another one (vllm#43559)."""
    if _long(exchange) and (salt := exchange.body.get("cache_salt")):
        if salt in Seen.salts:
            for choice in exchange.choices:
                choice["token_ids"][2:] = [token + 1 for token in choice["token_ids"][2:]]
        Seen.salts.add(salt)


@FAULTS.add("anything", check=CHANGED, says="scores differ from alone")
def is_off_in_company(exchange: Exchange) -> None:
    """A kernel for several long sequences sums values of another one."""
    if _long(exchange) and exchange.body.get("cache_salt"):
        salts = Company.salts
        salts[exchange.body["cache_salt"]] = time.monotonic()
        if sum(time.monotonic() - seen_at < 2 for seen_at in salts.values()) > 1:
            for choice in exchange.choices:
                scores = choice["logprobs"]["token_logprobs"]
                choice["logprobs"]["token_logprobs"] = [score - 5 for score in scores]


class Company:
    """When each salt was last answered."""

    salts: dict[str, float] = {}  # noqa: RUF012 - one run's


@FAULTS.add("anything", check="every_length_is_answered", says="8 tokens were requested")
def ends_long_answers_early(exchange: Exchange) -> None:
    """A limit counts the prompt in."""
    if _long(exchange):
        for choice in exchange.choices:
            choice["token_ids"] = choice["token_ids"][:3]
            choice["logprobs"] = {"token_logprobs": [-0.1] * 3}


@FAULTS.add("anything", check="too_long_is_refused", says="failed with 500, not refused")
def fails_on_what_is_too_long(exchange: Exchange) -> None:
    """The refusal is an uncaught exception."""
    if (
        exchange.path == COMPLETIONS
        and exchange.status == HTTPStatus.BAD_REQUEST
        and _long(exchange)
    ):
        exchange.status = HTTPStatus.INTERNAL_SERVER_ERROR


@FAULTS.add("anything", check="too_long_is_refused", says="refused without naming the limit")
def names_no_limit(exchange: Exchange) -> None:
    """A gateway has its own messages for refusals."""
    if (
        exchange.path == COMPLETIONS
        and exchange.status == HTTPStatus.BAD_REQUEST
        and _long(exchange)
    ):
        exchange.text = "bad request"


@FAULTS.add("anything", check="server_comes_to_rest", says="of the KV cache is in use")
def keeps_blocks(exchange: Exchange) -> None:
    """The blocks of a request are not freed when it ends."""
    _metrics(exchange, "vllm:kv_cache_usage_perc", 0.125)


@FAULTS.add("anything", check="planned_context_has_room", says="longer requests are refused")
def has_a_shorter_context(exchange: Exchange) -> None:
    """The context was silently shortened to what fits."""
    if exchange.path == "/v1/models":
        for event in exchange.events:
            for model in event.get("data", ()):
                model["max_model_len"] = 2304


@FAULTS.add("anything", check="planned_context_has_room", says="requests were preempted")
def preempts(exchange: Exchange) -> None:
    """The cache is too small for concurrent requests, and each is preempted in turn."""
    _metrics(exchange, "vllm:num_preemptions_total", time.monotonic() * 1000)


@FAULTS.add(
    "anything",
    check=SCORED,
    says="of a long prompt differ from the reference",
)
def is_off_at_long_positions(exchange: Exchange) -> None:
    """A rotary embedding is scaled beyond a length (a config's rope_parameters are not read)."""
    if _long(exchange) and exchange.body.get("prompt_logprobs"):
        for choice in exchange.choices:
            for place in (choice.get("prompt_logprobs") or [])[LONG:]:
                for scored in (place or {}).values():
                    scored["logprob"] -= 2
