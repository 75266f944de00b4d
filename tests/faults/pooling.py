"""Servers whose vectors are not those of the texts: the pooling gate's own checks fail."""

from __future__ import annotations

import base64
import math
import struct
import threading
from typing import TYPE_CHECKING, Any

from faults.fault import Faults
from pytest_vllm_gates.pooling.types import EMBEDDINGS, RERANK, SCORE
from pytest_vllm_gates.pooling.walk import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange

FAULTS = Faults("pooling")
LENGTH = "vectors_have_their_length"
OWN = "texts_have_vectors_of_their_own"
MODELS = "vectors_are_the_models"
KEEPS = "a_text_keeps_its_vector"
BATCH = "a_batch_holds_each_texts_vector"
COMPANY = "company_keeps_vectors_apart"
FORMS = "every_form_holds_the_same_numbers"
LONG = "long_texts_are_cut_as_asked"
FOUND = "questions_find_their_documents"
SCORES = "scores_follow_from_the_vectors"
REFUSED = "bad_requests_are_refused"
SERVED: dict[str, Any] = {}
LOCK = threading.Lock()


def rows(exchange: Exchange) -> list[dict[str, Any]]:
    """Return the vectors of an answer."""
    return [row for row in exchange.events[0].get("data") or () if "embedding" in row]


def change_vectors(exchange: Exchange, change: Callable[[list[float]], list[float]]) -> None:
    """Change every vector of an answer, in whichever form it is."""
    for row in rows(exchange):
        value = row["embedding"]
        if isinstance(value, str):
            data = base64.b64decode(value)
            numbers = change(list(struct.unpack(f"<{len(data) // 4}f", data)))
            row["embedding"] = base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
        else:
            row["embedding"] = change(value)


def turned(vector: list[float], by: float) -> list[float]:
    """Return a vector of the same length whose cosine to the given one is `1 - by`."""
    cosine = 1 - by
    across = [-vector[i ^ 1] if i % 2 else vector[i ^ 1] for i in range(len(vector))]
    sine = math.sqrt(1 - cosine * cosine)
    return [cosine * one + sine * other for one, other in zip(vector, across, strict=True)]


def asked_before(exchange: Exchange) -> bool:
    """Return whether a text has already been sent alone."""
    text = exchange.body.get("input")
    with LOCK:
        SERVED[str(text)] = SERVED.get(str(text), 0) + 1
        return isinstance(text, str) and SERVED[text] > 1


@FAULTS.told(EMBEDDINGS, KEEPS, "from its vector alone", COMPANY, FORMS, LONG)
def pools_the_new_tokens_alone(exchange: Exchange) -> None:
    """Once its prefix is cached, a text gets another vector (vllm-ascend#5725)."""
    if asked_before(exchange):
        change_vectors(exchange, lambda vector: turned(vector, 0.42))


@FAULTS.told(EMBEDDINGS, MODELS, "from the vector of transformers in fp32")
def drifts_a_little(exchange: Exchange) -> None:
    """Every vector is turned by 9 degrees, all alike: only the reference shows it."""
    change_vectors(exchange, lambda vector: turned(vector, 0.012))


@FAULTS.told(EMBEDDINGS, LENGTH, "scores by inner product are wrong")
def does_not_normalise(exchange: Exchange) -> None:
    """Vectors come as the model makes them."""
    change_vectors(exchange, lambda vector: [7.5 * number for number in vector])


@FAULTS.told(EMBEDDINGS, LENGTH, "2 times as many", MODELS)
def gives_vectors_of_tokens(exchange: Exchange) -> None:
    """The hidden states of all tokens come for one of the text (ai-dynamo/dynamo#10248)."""
    change_vectors(exchange, lambda vector: [number / math.sqrt(2) for number in 2 * vector])


@FAULTS.told(EMBEDDINGS, BATCH, "and it is the vector of")
def reverses_a_batch(exchange: Exchange) -> None:
    """A batch comes back in another order, with the indices of the right one."""
    found = rows(exchange)
    vectors = [row["embedding"] for row in found][::-1]
    for row, vector in zip(found, vectors, strict=True):
        row["embedding"] = vector


@FAULTS.told(EMBEDDINGS, BATCH, "texts got")
def loses_the_last_of_a_batch(exchange: Exchange) -> None:
    """The last text of a batch has no vector."""
    data = exchange.events[0]["data"]
    if len(data) > 1:
        data.pop()


@FAULTS.told(EMBEDDINGS, LENGTH, "usage counts", LONG)
def counts_characters(exchange: Exchange) -> None:
    """Usage has another number of tokens."""
    exchange.events[0]["usage"]["prompt_tokens"] += 5


@FAULTS.asked(EMBEDDINGS, LONG, "neither that of its first tokens nor that of its last")
def ignores_truncation(exchange: Exchange) -> None:
    """A gateway drops `truncate_prompt_tokens`, except values that would be refused."""
    if (exchange.body.get("truncate_prompt_tokens") or 0) > 0:
        exchange.body.pop("truncate_prompt_tokens")


@FAULTS.told(SCORE, SCORES, "and its vector gives")
def scores_otherwise(exchange: Exchange) -> None:
    """Scores are turned round."""
    for row in exchange.events[0]["data"]:
        row["score"] = 1 - row["score"]


@FAULTS.told(RERANK, SCORES, "the best is not first")
def ranks_the_worst_first(exchange: Exchange) -> None:
    """The order is the other way round."""
    exchange.events[0]["results"].reverse()


@FAULTS.told(RERANK, SCORES, " scores, got the indices ")
def ignores_top_n(exchange: Exchange) -> None:
    """One document comes twice."""
    results = exchange.events[0]["results"]
    results.append(results[0])


@FAULTS.asked(EMBEDDINGS, REFUSED, "it is answered 200, not 404")
def serves_any_model(exchange: Exchange) -> None:
    """A gateway answers for every model with its own."""
    if exchange.body.get("model") == UNKNOWN:
        exchange.body["model"] = SERVED["model"]
    else:
        SERVED["model"] = exchange.body.get("model")


@FAULTS.told(EMBEDDINGS, OWN, "hardly differ", MODELS, SCORES)
def collapses(exchange: Exchange) -> None:
    """All texts have almost one direction: deterministic, and useless for retrieval."""

    def narrow(vector: list[float]) -> list[float]:
        wide = [number + 5.0 for number in vector]
        norm = math.sqrt(sum(number * number for number in wide))
        return [number / norm for number in wide]

    change_vectors(exchange, narrow)


@FAULTS.told(EMBEDDINGS, FORMS, "from the text's vector")
def spoils_base64(exchange: Exchange) -> None:
    """Base64 has the numbers in the other order."""
    if exchange.body.get("encoding_format") == "base64":
        change_vectors(exchange, lambda vector: vector[::-1])
