"""Kernel faults of the CPU backend behind fluent answers: gates find them, the overlay repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from e2e import gates

from pytest_vllm_gates.machine import cpu_flags

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

MODEL = "glm/flash"
MLA = ("-m", "boot or numerics")
CONVOLVES = "avx512_bf16"
"""Without it vLLM does not call the kernel that dies (`gdn_attention.py` of 0.32.0)."""


@pytest.mark.slow  # it takes three minutes
def test_wrong_positions_turn_numerics_red(tmp_path: Path) -> None:
    ran = gates.run(tmp_path, *MLA, "--without-repair", "rotary_embedding", model=MODEL)
    assert ran.outcomes()["numerics"] == "FAIL"
    assert "have scores that differ from the reference" in ran.reasons("numerics")
    assert ran.verdict["promotion"] == "REJECT"
    assert not any("rotary" in repair for repair in ran.verdict["lane"]["overlay"])


@pytest.mark.slow
def test_the_repair_turns_it_green(tmp_path: Path) -> None:
    ran = gates.run(tmp_path, *MLA, model=MODEL)
    assert ran.outcomes() == {"boot": "PASS", "numerics": "PASS"}
    assert any("rotary" in repair for repair in ran.verdict["lane"]["overlay"])


@pytest.mark.parametrize(
    ("repair", "request_"),
    [
        pytest.param(
            "one_token_prompts",
            "a prompt of one token",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(
                    CONVOLVES not in cpu_flags.flags(),
                    reason="without AVX512-BF16 vLLM reads a prompt of one token another way",
                ),
            ],
        ),
        ("seeded_prompts", "a prompt that is read in steps, sampled with a seed"),
    ],
)
def test_valid_request_that_kills_the_engine_turns_it_red(
    tmp_path: Path, repair: str, request_: str
) -> None:
    ran = gates.run(tmp_path, "-m", "boot or robustness", "--without-repair", repair)
    assert ran.outcomes()["robustness"] == "FAIL", ran.output
    words = ran.reasons("robustness")
    assert f"{request_}:\n" in words
    # The process ends a while after its engine: the first request may see either.
    assert "an ordinary question: no answer" in words or "the server died while serving" in words
