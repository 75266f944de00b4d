"""A family's facts about pooling: a vector, a score or classes in the place of an answer."""

from __future__ import annotations

from typing import Literal

from pytest_vllm_gates.catalog import toml

POOLING = "pooling"
"""The gate that judges vectors."""
GATES = frozenset({"boot", "startup", POOLING, "captured", "incidents"})
"""The gates that ask nothing which a model that writes no text has no answer to."""
WRITES_NO_TEXT = "it makes vectors, scores or classes, and writes no text"


class Pooling(toml.Record):
    """How a family makes one vector of a text (sentence-transformers' `modules.json`)."""

    task: Literal["embed", "score", "classify"] = "embed"
    """What is made of it: the vector itself, one score of a pair, or a probability a label."""
    pooler: Literal["last", "mean", "cls"]
    """Whose hidden state it is: of the last token, the mean of all, or of the first."""
    normalised: bool = True
    """Whether a vector has the length 1."""
    question: str = "TEXT"
    """How a question is written before it is embedded; documents stand as they are."""
    appended: str = ""
    """The token that the tokenizer puts after a text."""
