"""A family's facts about pooling: a vector, a score or classes in the place of an answer."""

from __future__ import annotations

from typing import Literal

from pytest_vllm_gates.catalog import toml

POOLING = "pooling"
"""The gate that judges vectors."""
GATES = frozenset({"boot", "startup", POOLING, "captured", "incidents"})
"""The gates that can judge a model that does not write text."""
WRITES_NO_TEXT = "it makes vectors, scores or classes, and writes no text"


class Pooling(toml.Record):
    """How a family makes one vector of a text (sentence-transformers' `modules.json`)."""

    task: Literal["embed", "score", "classify"] = "embed"
    """The output: the vector itself, one score of a pair, or a probability for each label."""
    pooler: Literal["last", "mean", "cls"]
    """The hidden state: of the last token, the mean of all, or of the first."""
    normalised: bool = True
    """Whether a vector has the length 1."""
    question: str = "TEXT"
    """The form of a question that is embedded; documents are embedded unchanged."""
    appended: str = ""
    """The token that the tokenizer puts after a text."""
