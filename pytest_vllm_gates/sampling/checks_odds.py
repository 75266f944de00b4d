"""A sequential test of the documented law against faults that a server might have.

Under the documented law the likelihood of an alternative over that of the law is a martingale
that begins at 1, and so is the mean over alternatives: it reaches 1 / `alarm` with a probability of
at most `alarm`, however often one looks (J. Ville, 1939; A. Wald, Sequential Analysis, 1947).
By symmetry the same is true under an alternative: at 1 / `miss` it is excluded.

A law may have an unknown, the constant of a position's logits: it is one of a few values, a column
each. The accused law counts by its best column and the accuser by the mean of its columns, which
keeps both rates (L. Wasserman, A. Ramdas, S. Balakrishnan, Universal inference, PNAS 117, 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.sampling.types import Logs


@dataclass(frozen=True)
class AuditOdds:
    """Error rates of one test, stated in advance."""

    alarm: float
    """The probability of an alarm if the documented law is drawn from."""
    miss: float
    """The probability of an all-clear if one of the alternatives is drawn from."""


@dataclass
class SequentialTest:
    """The log-likelihoods of what was drawn so far, by column."""

    odds: AuditOdds
    documented: Logs
    instead: dict[str, Logs]
    draws: int = 0
    impossible: list[int] = field(default_factory=list)
    """Tokens that the documented law cannot draw."""
    excluded: set[str] = field(default_factory=set)
    explained: dict[str, float] = field(default_factory=dict)
    """By alternative the log-likelihood of all draws, the impossible ones with the others."""

    @staticmethod
    def between(alternatives: Sequence[str], odds: AuditOdds, columns: int = 1) -> SequentialTest:
        """Begin a test without draws."""
        return SequentialTest(
            odds, np.zeros(columns), {name: np.zeros(columns) for name in alternatives}
        )

    def add(self, tokens: Sequence[int], documented: Logs, instead: Mapping[str, Logs]) -> None:
        """Count draws: each one's log-probability by the documented law and by every alternative.

        Shape (draws,) or (draws, columns). A draw that is impossible by the documented law is kept
        as such, and counts for no ratio.
        """
        documented = documented.reshape(len(tokens), -1)
        possible = np.array(np.isfinite(documented).any(axis=1), ndmin=1)
        self.impossible += [token for token, fine in zip(tokens, possible, strict=True) if not fine]
        self.draws += len(tokens)
        self.documented = self.documented + documented[possible].sum(axis=0)
        for name, logs in instead.items():
            columns = logs.reshape(len(tokens), -1)
            self.explained[name] = self.explained.get(name, 0.0) + float(columns.mean(axis=1).sum())
            self.instead[name] = self.instead[name] + columns[possible].sum(axis=0)
            against = _mean(self.documented) - float(self.instead[name].max())
            if against >= np.log(1 / self.odds.miss):
                self.excluded.add(name)

    def ratio(self, name: str) -> float:
        """The logarithm of how much better an alternative explains the draws."""
        return _mean(self.instead[name]) - float(self.documented.max())

    @property
    def evidence(self) -> float:
        """The logarithm of the martingale: the evidence that another law is drawn from."""
        return _mean(np.array([self.ratio(name) for name in self.instead]))

    @property
    def fails(self) -> bool:
        """Whether a law other than the documented one is drawn from."""
        return bool(self.impossible) or self.evidence >= float(np.log(1 / self.odds.alarm))

    @property
    def passes(self) -> bool:
        """Whether every alternative is excluded."""
        return not self.fails and self.excluded == set(self.instead)

    @property
    def decided(self) -> bool:
        """Whether no more draws are needed."""
        return self.fails or self.passes

    @property
    def likeliest(self) -> str:
        """The alternative that explains the draws best."""
        return max(self.instead, key=lambda name: self.explained.get(name, 0.0))

    @property
    def undecided(self) -> list[str]:
        """The alternatives that are not excluded."""
        return [name for name in self.instead if name not in self.excluded]


def _mean(logs: Logs) -> float:
    """Return the logarithm of the mean of numbers by their logarithms."""
    return float(np.logaddexp.reduce(logs) - np.log(len(logs)))
