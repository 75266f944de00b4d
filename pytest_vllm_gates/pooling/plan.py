"""What the pooling gate embeds, from `data/pooling.toml`."""

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
    """How far vectors may be from one another, as 1 - cosine; `norm` from the length 1."""

    same: float = Field(gt=0, lt=1)
    apart: float = Field(gt=0, lt=1)
    norm: float = Field(gt=0, lt=1)


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


@cache
def shipped() -> PoolingPlan:
    """Return the plan that is shipped."""
    return toml.load(FOLDER / "pooling.toml", PoolingPlan)
