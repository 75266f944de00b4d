"""A task of GSM8K's size, computed: the miniatures cannot solve it.

GSM8K's test split has 1,319 questions (https://huggingface.co/datasets/openai/gsm8k), and an exact
match compares the last number of an answer. The share of plain answers whose last number, or last
word, a fault changes is measured on the miniature; the loss of accuracy is that share of ASSUMED,
and it is found where it is larger than two standard errors of a difference of two such runs.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.contest.types import Reply

QUESTIONS = 1_319
ASSUMED = 0.8
"""The accuracy of the clean model, assumed; it sets the standard error."""
LAST_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
LAST_WORD = re.compile(r"\w+")


def standard_error(accuracy: float = ASSUMED) -> float:
    """Return the standard error of one run's accuracy."""
    return math.sqrt(accuracy * (1 - accuracy) / QUESTIONS)


def least_loss() -> float:
    """Return the least loss of accuracy that is found: two standard errors of a difference."""
    return 2 * math.sqrt(2) * standard_error()


def matched(text: str) -> str:
    """Return what an exact match compares: the last number, or else the last word."""
    numbers = LAST_NUMBER.findall(text) or LAST_WORD.findall(text.lower())
    return numbers[-1].rstrip(",") if numbers else ""


def judge(replies: Mapping[str, Reply], recorded: Mapping[str, Reply]) -> tuple[bool, str]:
    """Return whether the loss that the changed answers would cost is found."""
    changed = [
        name
        for name, reply in recorded.items()
        if name not in replies or matched(replies[name].content) != matched(reply.content)
    ]
    share = len(changed) / len(recorded) if recorded else 0.0
    loss = ASSUMED * share
    return loss > least_loss(), f"{len(changed)} of {len(recorded)} answers, loss {loss:.1%}"
