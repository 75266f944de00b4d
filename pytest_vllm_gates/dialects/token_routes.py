"""Converts texts to tokens and back by `/tokenize` and `/detokenize`, and judges the results.

Clients count a prompt with the first, and read the text of a prompt's tokens with the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.http import DETOKENIZE, TOKENIZE
from pytest_vllm_gates.client.untyped import record, records, shown
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

MODELS = "/v1/models"
MISSING = (404, 405, 501)
TEXTS: Mapping[str, str] = {
    "blanks at both ends": "  Two blanks first,\n\n a line\tand a tab.  ",
    "letters beyond ASCII": "Grüße aus 東京, 👩‍🚀!",
}


@dataclass(frozen=True)
class TokenTrip:
    """A text, its tokens, the text of the tokens, and the tokens of that text."""

    case: Case
    there: Mapping[str, Any]
    """The answer of `/tokenize`."""
    back: str
    again: tuple[int, ...]
    context: int | None
    """The context that `/v1/models` reports."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The text's tokens."""
        return tuple(form.token_ids(self.there.get("tokens"), "tokens"))


def ask(endpoint: Endpoint) -> list[TokenTrip]:
    """Convert each text there and back; raises `NotApplicable` for a server without the routes."""
    with http.client(endpoint) as client, form.reading(f"the answer of {MODELS}"):
        reply = client.get(MODELS)
        listed = records(record(reply.json()).get("data")) if reply.is_success else []
    context = next((each.get("max_model_len") for each in listed), None)
    trips = []
    for name, text in TEXTS.items():
        request = {"prompt": text, "add_special_tokens": False}
        there = _post(endpoint, TOKENIZE, request)
        tokens = form.token_ids(there.get("tokens"), "tokens")
        back = form.text(_post(endpoint, DETOKENIZE, {"tokens": tokens}).get("prompt"), "prompt")
        again = _post(endpoint, TOKENIZE, {**request, "prompt": back})
        trips.append(
            TokenTrip(
                Case(name, request=request), there, back,
                tuple(form.token_ids(again.get("tokens"), "tokens")), context,
            )
        )  # fmt: skip
    return trips


def _post(endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    reply = http.post(endpoint, path, body)
    if reply.status_code in MISSING:
        raise NotApplicable(f"the server has no {path}: answered {reply.status_code}")
    with form.reading(f"the answer of {path}"):
        return record(reply.raise_for_status().json())


def findings(trips: list[TokenTrip]) -> Iterator[Finding]:
    """Yield texts and counts that do not match the tokens."""
    for trip in trips:
        for sentence in faults(trip):
            yield Finding(trip.case, sentence)


def faults(trip: TokenTrip) -> Iterator[str]:
    """Yield the faults of one text's conversion.

    A tokenizer may write the text differently, but it has to have the same tokens.
    """
    count, length = trip.there.get("count"), trip.there.get("max_model_len")
    if count != len(trip.tokens):
        yield f"count is {shown(count)}, and the answer has {len(trip.tokens)} tokens"
    if None not in (length, trip.context) and length != trip.context:
        yield f"max_model_len is {shown(length)}, and {MODELS} reports {trip.context}"
    if trip.again != trip.tokens:
        yield (
            f"{DETOKENIZE} gives {shown(trip.back)}, which has {len(trip.again)} tokens and not "
            f"the same {len(trip.tokens)}"
        )
