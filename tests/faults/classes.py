"""Servers whose scores and labels are not those of the inputs: the pooling gate's checks fail."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from faults.fault import Faults
from pytest_vllm_gates.pooling.classes import CLASSIFY
from pytest_vllm_gates.pooling.types import RERANK, SCORE
from pytest_vllm_gates.pooling.walk import UNKNOWN

if TYPE_CHECKING:
    from faults.exchange import Exchange

SCORING = Faults("pooling")
"""Faults of a server that scores pairs."""
LABELLING = Faults("pooling")
"""Faults of a server that classifies texts."""
FORM = "classes_have_their_form"
APART = "scores_tell_inputs_apart"
MODELS = "classes_are_the_models"
KEEPS = "an_input_keeps_its_classes"
CUT = "long_inputs_are_cut_as_asked"
ORDER = "documents_are_put_in_order"
REFUSED = "what_has_no_class_is_refused"
SERVED: dict[str, Any] = {}
SEEN: set[str] = set()
"""Texts that were classified in this run."""
LOCK = threading.Lock()


def rows(exchange: Exchange) -> list[dict[str, Any]]:
    """Return the rows of `/classify` or `/score`."""
    found: list[dict[str, Any]] = exchange.events[0]["data"]
    return found


@SCORING.told(SCORE, FORM, "some are not between 0 and 1", MODELS, KEEPS, CUT, ORDER)
def gives_logits(exchange: Exchange) -> None:
    """Scores come without the activation that thresholds were set for."""
    for row in rows(exchange):
        row["score"] = 12 * row["score"] - 6


@SCORING.told(SCORE, MODELS, "and transformers in fp32 gives", KEEPS, CUT, ORDER)
def scores_a_little_lower(exchange: Exchange) -> None:
    """Every score is a tenth lower: the order stays."""
    for row in rows(exchange):
        row["score"] *= 0.9


@SCORING.asked(SCORE, APART, "which answers another question", MODELS, KEEPS, CUT, ORDER)
def turns_pairs_round(exchange: Exchange) -> None:
    """The document is read as the question."""
    body = exchange.body
    body["text_1"], body["text_2"] = body["text_2"], body["text_1"]


@SCORING.told(SCORE, KEEPS, "expected at most 0.02 apart", ORDER)
def turns_batches_round(exchange: Exchange) -> None:
    """The scores of a batch come in the other order, with the indices of the right one."""
    found = rows(exchange)
    for row, score in zip(found, [row["score"] for row in found][::-1], strict=True):
        row["score"] = score


@SCORING.told(SCORE, FORM, "usage counts", CUT)
def counts_the_question_twice(exchange: Exchange) -> None:
    """Usage has the tokens of the question once more."""
    exchange.events[0]["usage"]["prompt_tokens"] += 5


@SCORING.asked(SCORE, CUT, "tokens are expected after the cut, and usage counts")
def cuts_no_pairs(exchange: Exchange) -> None:
    """A gateway drops `truncate_prompt_tokens`."""
    exchange.body.pop("truncate_prompt_tokens", None)


@SCORING.told(RERANK, ORDER, "the best is not first")
def ranks_the_worst_first(exchange: Exchange) -> None:
    """The order is the other way round."""
    exchange.events[0]["results"].reverse()


@SCORING.told(RERANK, ORDER, "documents, got the indices")
def ignores_top_n(exchange: Exchange) -> None:
    """One document comes twice."""
    results = exchange.events[0]["results"]
    results.append(results[0])


@LABELLING.told(CLASSIFY, FORM, "the label is ")
def names_labels_by_another_list(exchange: Exchange) -> None:
    """Labels are those of another checkpoint."""
    for row in rows(exchange):
        row["label"] = {"question": "document", "document": "other"}.get(row["label"], "question")


@LABELLING.told(CLASSIFY, FORM, "the probabilities sum to ", MODELS)
def gives_each_label_a_probability_of_its_own(exchange: Exchange) -> None:
    """The activation is that of several labels at once."""
    for row in rows(exchange):
        row["probs"] = [min(1.0, number + 0.2) for number in row["probs"]]


@LABELLING.told(CLASSIFY, MODELS, "and transformers in fp32 gives")
def loses_the_last_layer(exchange: Exchange) -> None:
    """Everything is less sure, all alike."""
    for row in rows(exchange):
        row["probs"] = [0.7 * number + 0.1 for number in row["probs"]]


@LABELLING.told(CLASSIFY, KEEPS, "and alone ", CUT)
def pools_the_new_tokens_alone(exchange: Exchange) -> None:
    """Once its prefix is cached, a text gets other probabilities."""
    value = exchange.body.get("input")
    with LOCK:
        again = isinstance(value, str) and value in SEEN
        SEEN.add(str(value))
    if again:
        for row in rows(exchange):
            even = 1 / len(row["probs"])
            row["probs"] = [0.7 * share + 0.3 * even for share in row["probs"]]


@LABELLING.told(CLASSIFY, APART, "all inputs have the same", MODELS)
def answers_all_alike(exchange: Exchange) -> None:
    """The head was not loaded."""
    for row in rows(exchange):
        row["probs"], row["label"] = [0.5, 0.3, 0.2], "question"


@LABELLING.asked(CLASSIFY, REFUSED, "it is answered 200, not 404")
def serves_any_model(exchange: Exchange) -> None:
    """A gateway answers for every model with its own."""
    if exchange.body.get("model") == UNKNOWN:
        exchange.body["model"] = SERVED["model"]
    else:
        SERVED["model"] = exchange.body.get("model")
