"""The canary's times may be longer by a ratio, and by what the shadow adds to them."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.shadow import settings
from pytest_vllm_gates.shadow.figures import figure_state
from pytest_vllm_gates.shadow.tally import Values

PAIRS = 600
LEVELS = (1e-4, 1e-4)


@pytest.mark.parametrize(
    ("stable_s", "canary_s", "rejected", "fine"),
    [
        pytest.param(0.002, 0.008, False, True, id="milliseconds that the shadow adds"),
        pytest.param(0.002, 0.02, True, False, id="more than it adds"),
        pytest.param(1.0, 1.2, False, True, id="within the ratio"),
        pytest.param(1.0, 1.3, True, False, id="beyond it"),
    ],
)
def test_times_within_the_ratio_and_what_the_shadow_adds(
    stable_s: float, canary_s: float, rejected: bool, fine: bool
) -> None:
    figure = settings.load().figures["ttft_s"]
    values = Values([stable_s] * PAIRS, [canary_s] * PAIRS)
    state = figure_state("ttft_s", 0.5, figure, values, LEVELS)
    assert (state.rejected, state.fine) == (rejected, fine)
