"""Do sampling parameters have their effect, or is one taken and ignored?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts.effects import Effect, Generated

NARROWING = ("top_k", "top_p", "min_p")
"""Parameters that, as they are asked for, leave the most probable token alone."""
AS_LIKELY_NATS = 0.01
"""Tokens that are so close in log-probability are as likely: half precision tells no more."""


def missing(effect: Effect) -> Iterator[str]:
    """Yield a sentence for each effect that a request was to have and that is not there."""
    if effect.failed:
        yield f"the server fails: {effect.failed}"
    if effect.failed or effect.refused:
        return
    wanted = int(effect.request.get("n", 1))
    if len(effect.choices) != wanted:
        yield f"{wanted} choices were asked for (n), and {len(effect.choices)} came"
    for choice in effect.choices:
        yield from _missing(effect, choice)


def _missing(effect: Effect, choice: Generated) -> Iterator[str]:
    request, ids = effect.request, choice.token_ids
    if not ids:
        yield "nothing was generated"
        return
    if choice.finish_reason is None:
        yield "the answer has no finish_reason"
    if (least := request.get("min_tokens", 0)) > len(ids):
        yield f"min_tokens is {least}, and {len(ids)} tokens came"
    if came := sorted(effect.barred & set(ids)):
        yield f"{effect.parameter} forbids {_tokens(came)}, and it came"
    allowed = request.get("allowed_token_ids")
    if allowed and (others := sorted(set(ids) - set(allowed))):
        yield f"allowed_token_ids leaves {_tokens(allowed)}, and {_tokens(others)} came"
    if request.get("include_stop_str_in_output") and choice.finish_reason == "stop":
        (stop,) = request["stop"]
        if not choice.text.endswith(stop):
            yield f"the answer is to end in its stop {stop!r}, and ends in {choice.text[-40:]!r}"
    if "logprobs" in request:
        yield from _scored(effect, choice)


def _scored(effect: Effect, choice: Generated) -> Iterator[str]:
    tokens, scored, told = len(choice.token_ids), len(choice.logprobs), len(choice.best)
    if not tokens == scored == told:
        yield f"{tokens} tokens came, log-probabilities of {scored}, and the best at {told} places"
        return
    asked = [f"{name} {effect.request[name]}" for name in NARROWING if name in effect.request]
    pairs = zip(choice.logprobs, choice.best, strict=True)
    behind = [best - own for own, best in pairs if best - own > AS_LIKELY_NATS]
    if asked and behind:
        yield (
            f"{' and '.join(asked)} leaves the most probable token, and {len(behind)} of {tokens} "
            f"are others, by up to {max(behind):.2f} nats"
        )


def _tokens(ids: list[int]) -> str:
    return f"token {', '.join(map(str, ids))}" if len(ids) == 1 else f"tokens {ids}"
