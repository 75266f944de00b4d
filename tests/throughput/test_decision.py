"""A decision is reported with its interval and its odds."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pytest_vllm_gates.throughput.decision import Conclusion, Decision
from pytest_vllm_gates.throughput.statistics import Mean
from throughput.boot_noise import PLAN

# By the tables, t with 8 degrees: 2.896 at 1 %, 1.860 at 5 %.
DECISION = Decision(
    Conclusion.REGRESSION,
    "itl_s is surely worse (+9.0%)",
    {
        "output_tokens_per_s": Mean(-math.log(0.9), 0.0200004, 8),
        "ttft_s": Mean(math.log(1.2), 0.01, 8),
    },
    (0.01, 0.05),
    {"the client sent its requests late": 3},
    alarm=0.02,
)


def test_decision_sentence_has_interval_and_odds() -> None:
    assert DECISION.sentence(PLAN.odds) == (
        "REGRESSION: -10.0% output_tokens_per_s (surely between -13.3% and -4.6%; at most 1.0% of "
        "all gates are wrong alarms and 5.0% wrong passes); itl_s is surely worse (+9.0%)"
    )
    assert dataclasses.replace(DECISION, why="").sentence(PLAN.odds).endswith("wrong passes)")


def test_decision_evidence_has_every_figure() -> None:
    assert dataclasses.replace(DECISION, errors=(0.01, 1 / 21)).as_evidence() == {
        "answer": "REGRESSION",
        "why": "itl_s is surely worse (+9.0%)",
        "changes": {
            "output_tokens_per_s": {
                "change": -0.1,
                "at_best": pytest.approx(-0.0463, abs=1e-4),
                "at_worst": pytest.approx(-0.1332, abs=5e-4),
                "sd_error": 0.02,
                "degrees": 8,
            },
            "ttft_s": {
                "change": 0.2,
                "at_best": pytest.approx(0.1657, abs=1e-4),
                "at_worst": pytest.approx(0.2227, abs=1e-3),
                "sd_error": 0.01,
                "degrees": 8,
            },
        },
        "errors_spent_now": [0.01, 0.047619],
        "alarm": 0.02,
        "void": {"the client sent its requests late": 3},
    }
