"""The figures of a phase have the field's names."""

from __future__ import annotations

import pytest

from judge.test_loaded import LIMITS, TOKENS, USERS, phase
from pytest_vllm_gates.judge import slo


def test_figures_have_the_fields_names() -> None:
    found = slo.figures(phase(), LIMITS)
    assert found["output_tokens_per_s"] == USERS * TOKENS / 2.0
    assert found["requests_per_s"] == found["goodput_per_s"] == 2.0
    assert found["ttft_s"]["p50"] == pytest.approx(0.06)
    assert found["itl_s"]["p99"] == pytest.approx(0.02)
    assert found["counted_by"] == ["usage"]
