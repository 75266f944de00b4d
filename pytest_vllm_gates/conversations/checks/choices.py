"""Checks that the choices of one answer are not mixed and fit their log-probabilities.

Source for log-probabilities: https://platform.openai.com/docs/api-reference/chat/object, where
`bytes` of several tokens "must be combined to generate the correct text representation".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.untyped import index_key, records, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SHOWN = 60
BYTE = range(256)
NATS = 0.1
"""Log-probabilities of one token differ by less when they are computed in another batch."""


@dataclass
class ScoredChoice:
    """One choice of an answer with its tokens and their log-probabilities."""

    index: Any
    content: str = ""
    finish_reason: str | None = None
    token_ids: list[int] = field(default_factory=list)
    scores: list[Mapping[str, Any]] = field(default_factory=list)
    """`logprobs.content`, an entry for each token."""
    ahead: str = ""
    """The content of a stream at the first chunk whose text came before its tokens."""

    @property
    def tokens(self) -> str:
        """The text of the tokens that have log-probabilities, with markers."""
        return "".join(str(score.get("token") or "") for score in self.scores)


def of_whole(body: Mapping[str, Any]) -> list[ScoredChoice]:
    """Return the choices of a whole answer by their index.

    Raises `ValueError` and similar for an answer that breaks the API.
    """
    return _merged([choice | {"delta": choice["message"]} for choice in body["choices"]])


def of_stream(chunks: Iterable[Mapping[str, Any]]) -> list[ScoredChoice]:
    """Return the assembled choices of a stream by their index; raises like `of_whole`."""
    return _merged(choice for chunk in chunks for choice in chunk.get("choices") or ())


def unaligned(choice: ScoredChoice) -> Iterator[str]:
    """Yield log-probabilities of a choice that do not belong to its text."""
    count, scored = len(choice.token_ids), len(choice.scores)
    if count and count != scored:
        yield f"{count} tokens came, and {scored} have log-probabilities"
    if choice.content.strip() not in choice.tokens:
        tokens, content = choice.tokens[:SHOWN], choice.content[:SHOWN]
        yield f"logprobs are of the text {tokens!r}, and content is {content!r}"
    elif choice.ahead:
        yield f"the text came before its log-probabilities: {choice.ahead[-SHOWN:]!r}"
    for score in choice.scores:
        listed, token = score.get("bytes"), score.get("token")
        if listed is not None and bytes(listed) != str(token).encode("utf-8", "replace"):
            yield f"the bytes of the token {token!r} are {listed}"
            return


def implausible(choice: ScoredChoice, *, greedy: bool, alternatives: int) -> Iterator[str]:
    """Yield log-probabilities that a choice cannot have.

    A token of a `greedy` answer is the likeliest one, and has `alternatives` entries, with itself
    among them. A sampled token that is not among the likeliest is the first entry in vLLM.
    """
    for number, score in enumerate(choice.scores):
        drawn, token = float(score["logprob"]), score["token"]
        listed = records(score.get("top_logprobs"))
        values = [
            each["logprob"] for each in listed if isinstance(each.get("logprob"), int | float)
        ]
        if any(value > NATS for value in (drawn, *values)):
            yield f"log-probability {number}, of {token!r}, is {max(drawn, *values):.3f}, above 0"
            return
        if not greedy:
            continue
        if len(listed) < alternatives:
            yield f"token {number} has {len(listed)} alternatives of {alternatives} requested"
            return
        if values and (max(values) > drawn + NATS or max(values) > values[0] + NATS):
            yield (
                f"token {number}, {token!r}, has the log-probability {drawn:.3f}, and its "
                f"alternatives have {', '.join(f'{value:.3f}' for value in values)}"
            )
            return


def scored_otherwise(whole: ScoredChoice, streamed: ScoredChoice) -> Iterator[str]:
    """Yield log-probabilities of a stream that differ from a whole answer of the same tokens."""
    if whole.token_ids != streamed.token_ids:
        return
    for number, (first, second) in enumerate(zip(whole.scores, streamed.scores, strict=False)):
        apart = abs(first["logprob"] - second["logprob"])
        if first["token"] != second["token"] or apart > NATS:
            yield (
                f"log-probability {number} is {first['logprob']:.3f} of {first['token']!r} in the "
                f"whole answer, {second['logprob']:.3f} of {second['token']!r} in the streamed one"
            )
            return


def miscounted(choices: Sequence[ScoredChoice], count: int) -> Iterator[str]:
    """Yield a sentence if the indices of an answer's choices do not fit `count`."""
    indices = [choice.index for choice in choices]
    if [*map(index_key, indices)] != [*map(index_key, range(count))]:
        yield f"{count} choices were requested (n), and the answer has the indices {shown(indices)}"


def mixed(choices: Sequence[ScoredChoice], texts: Sequence[str]) -> Iterator[str]:
    """Yield the choices that are not one of the `texts` that a grammar allows."""
    for choice in choices:
        if choice.finish_reason == "stop" and choice.content.strip() not in texts:
            yield f"choice {choice.index} is not one of the texts that the grammar allows: " + repr(
                choice.content[:SHOWN]
            )


def swapped(whole: Sequence[ScoredChoice], streamed: Sequence[ScoredChoice]) -> Iterator[str]:
    """Yield choices of a stream whose index differs from the whole answer with the same seed."""
    first, second = ([choice.token_ids for choice in choices] for choices in (whole, streamed))
    if first == second or sorted(first) != sorted(second):
        return  # the same, or generated differently
    for place, choice in enumerate(streamed):
        if choice.token_ids != first[place]:
            at = first.index(choice.token_ids)
            yield f"choice {choice.index} of the stream is choice {at} of the whole answer"


def _merged(pieces: Iterable[Mapping[str, Any]]) -> list[ScoredChoice]:
    by_index: dict[tuple[bool, int, str], ScoredChoice] = {}
    for piece in pieces:
        index = piece["index"]
        choice = by_index.setdefault(index_key(index), ScoredChoice(index))
        choice.content += (piece.get("delta") or {}).get("content") or ""
        choice.token_ids += _token_ids(piece.get("token_ids") or [])
        choice.scores += _scores((piece.get("logprobs") or {}).get("content") or [])
        choice.finish_reason = piece.get("finish_reason") or choice.finish_reason
        if not choice.ahead and choice.content.strip() not in choice.tokens:
            choice.ahead = choice.content
    return [choice for _, choice in sorted(by_index.items())]


def _token_ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(token, int) for token in value):
        raise ValueError(f"token_ids are {shown(value)}")
    return value


def _scores(value: Any) -> list[Mapping[str, Any]]:
    for score in value:
        listed = score.get("bytes")
        is_text = listed is None or all(isinstance(each, int) and each in BYTE for each in listed)
        float(score["logprob"])
        if not is_text or not isinstance(score["token"], str):
            raise ValueError(f"logprobs have the entry {shown(score)}")
    scores: list[Mapping[str, Any]] = value
    return scores
