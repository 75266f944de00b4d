"""The texts of the pooling gate, from `data/pooling.toml`."""

from __future__ import annotations

from functools import cache

from pydantic import Field

from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.data import FOLDER


class QuestionPair(toml.Record):
    """A question and the document that answers it."""

    question: str
    document: str


class Limits(toml.Record):
    """The limits of distances between vectors, as 1 - cosine; `norm` is the distance from norm 1.

    `score` is the allowed difference of two scores or probabilities of one input.
    """

    same: float = Field(gt=0, lt=1)
    apart: float = Field(gt=0, lt=1)
    norm: float = Field(gt=0, lt=1)
    score: float = Field(gt=0, lt=1)


class PoolingPlan(toml.Record):
    """The texts and the limits."""

    pairs: tuple[QuestionPair, ...] = Field(min_length=2)
    texts: dict[str, str]
    limits: Limits

    def named(self, question: str) -> dict[str, str]:
        """Return every text by its name; `question` is how a family writes one, with TEXT in it."""
        named: dict[str, str] = {}
        for number, pair in enumerate(self.pairs, 1):
            named[f"question {number}"] = question.replace("TEXT", pair.question)
            named[f"document {number}"] = pair.document
        return {**named, **self.texts}

    def classified(self) -> dict[str, tuple[str, ...]]:
        """Return every text by its name, as the only text of an input."""
        return {name: (text,) for name, text in self.named("TEXT").items()}

    def scored(self) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        """Return questions and documents as inputs, and for each own document's input another's.

        An input is a question with its own document, or with that of the next question.
        """
        inputs: dict[str, tuple[str, ...]] = {}
        own: dict[str, str] = {}
        for number, pair in enumerate(self.pairs, 1):
            after = number % len(self.pairs) + 1
            mine, other = (f"question {number} and document {each}" for each in (number, after))
            inputs[mine] = (pair.question, pair.document)
            inputs[other] = (pair.question, self.pairs[after - 1].document)
            own[mine] = other
        return inputs, own


@cache
def shipped() -> PoolingPlan:
    """Return the plan that is shipped."""
    return toml.load(FOLDER / "pooling.toml", PoolingPlan)
