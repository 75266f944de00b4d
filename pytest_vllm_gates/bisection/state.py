"""The trials of a bisection in one file, so that a killed search can continue."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bisection.types import TrialAnswer
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "pytest-vllm-gates/bisect"
VERSION = 1


@dataclass(frozen=True)
class Trial:
    """One boot of a bisection, and its result."""

    mixture: str
    """Its key."""
    number: int
    """The number of the mixture's trial, counted from 1."""
    answer: TrialAnswer
    why: str
    seconds: float
    lane: str = ""
    """The file of the served lane; empty if it could not be made."""
    vllm: str = ""
    failed: tuple[str, ...] = ()
    """The tests that failed."""


@dataclass
class BisectState:
    """The trials so far, and their file."""

    file: Path
    question: dict[str, Any]
    """The subject of the trials; trials about another subject are ignored."""
    trials: list[Trial] = dataclasses.field(default_factory=list)

    def known(self, mixture: str, number: int) -> Trial | None:
        """Return a trial that was made already."""
        return next(
            (trial for trial in self.trials if (trial.mixture, trial.number) == (mixture, number)),
            None,
        )

    def add(self, trial: Trial) -> None:
        """Keep a trial; the file is written whole or not at all."""
        self.trials.append(trial)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "question": self.question,
            "trials": [dataclasses.asdict(each) for each in self.trials],
        }
        write_whole(self.file, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def opened(file: Path, question: dict[str, Any]) -> BisectState:
    """Return the state in `file`, empty if it is missing or about another question.

    Raises `UserError` for another kind of file.
    """
    if not file.exists():
        return BisectState(file, question)
    try:
        document = bounded_read.json(file, unique=True, whole=True)
        trials = [
            Trial(
                **{
                    **trial,
                    "answer": TrialAnswer(trial["answer"]),
                    "failed": tuple(trial.get("failed", ())),
                }
            )
            for trial in document["trials"]
        ]
    except (FileError, TypeError, ValueError, KeyError) as error:
        raise UserError(
            f"{file}: cannot be read: {error}\nstart again without it: rm {file}"
        ) from error
    return BisectState(file, question, trials if document.get("question") == question else [])
