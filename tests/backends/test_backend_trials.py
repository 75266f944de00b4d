"""Trials of backends are laid out and judged: a refusal is fine, a wrong answer is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.backends.run import with_backend
from pytest_vllm_gates.backends.types import (
    DEFAULT,
    DIES,
    FAILS,
    REFUSED,
    REPLACED,
    SERVES,
    BackendMatrix,
    BackendTrial,
    refusal,
)
from pytest_vllm_gates.server import fallbacks, startup

HEALTHY = Path(__file__).parent.parent / "signatures" / "healthy"
PLAIN = BackendTrial(DEFAULT, {}, SERVES, used="FLASH_ATTN", compared="fp32", tokens_per_s=200.0)
TRITON = BackendTrial(
    "TRITON_ATTN", {"attention_backend": "TRITON_ATTN"}, SERVES, used="TRITON_ATTN",
    compared="fp32", tokens_per_s=100.0,
)  # fmt: skip
# Composed from get_attn_backend_cls in vLLM 0.32.0, platforms/cuda.py.
REFUSES = """\
(EngineCore pid=9) ERROR 11-22 22:05:12 [core.py:1290]     raise ValueError(
(EngineCore pid=9) ERROR 11-22 22:05:12 [core.py:1290] ValueError: Selected backend \
AttentionBackendEnum.FLASHMLA is not valid for this configuration. Reason: ['head_size not \
supported']
"""
USES = "(EngineCore pid=9) INFO 11-22 22:05:12 [cuda.py:446] Using {} backend.\n"


def test_refusal_is_reported_in_vllms_words() -> None:
    assert refusal(REFUSES) == (
        "Selected backend AttentionBackendEnum.FLASHMLA is not valid for this configuration. "
        "Reason: ['head_size not supported']"
    )
    for log in HEALTHY.glob("*.log"):
        assert refusal(log.read_text("utf-8")) == ""


def test_the_backend_of_a_gpu_is_read_and_a_swap_noticed() -> None:
    default = (HEALTHY / "gpu-h100-deepseek-0.32-eager.log").read_text("utf-8")
    assert startup.read(default).facts["attention_backend"] == "FLASH_ATTN_MLA"
    asked = {"attention_backend": "TRITON_MLA"}
    (fallback,) = fallbacks.read(default, asked, {}, "0.32.0").fallbacks
    assert fallback.says == "the log reports FLASH_ATTN_MLA"
    served = USES.format("AttentionBackendEnum.TRITON_MLA")  # composed: how an enum is printed
    for name in (served, USES.format("TRITON_MLA")):
        assert fallbacks.read(name, asked, {}, "0.32.0").fallbacks == ()


def test_gdn_kernel_of_a_gpu_is_compared_with_the_requested_one() -> None:
    log = (HEALTHY / "gpu-h100-qwen3.5-0.32.log").read_text("utf-8")
    assert fallbacks.read(log, {"gdn_prefill_backend": "triton"}, {}).fallbacks == ()
    (fallback,) = fallbacks.read(log, {"gdn_prefill_backend": "flashinfer"}, {}).fallbacks
    assert fallback.says == "the log reports Triton/FLA"


def test_a_matrix_is_laid_out_with_speeds_relative_to_the_default() -> None:
    refused = BackendTrial("FLASHINFER", {}, REFUSED, "Selected backend … is not valid")
    wrong = BackendTrial(
        "FLEX_ATTENTION", {}, SERVES, faults=("plain: mean distance 3",), compared="fp32"
    )
    matrix = BackendMatrix(
        [PLAIN, TRITON, refused, wrong], {"B12X": "it is for compute capability 12"}
    )
    lines = [" ".join(line.split()) for line in matrix.lines()]
    assert lines == [
        "default serves right 200 tokens/s log: FLASH_ATTN",
        "TRITON_ATTN serves right 100 tokens/s 50% of the default log: TRITON_ATTN",
        "FLASHINFER refused",
        "Selected backend … is not valid",
        "FLEX_ATTENTION serves WRONG",
        "plain: mean distance 3",
        "B12X not tried: it is for compute capability 12",
    ]
    assert matrix.as_json()["backends"][1]["relative_to_default"] == 0.5
    assert matrix.status == 1


@pytest.mark.parametrize(
    ("trials", "status"),
    [
        ([PLAIN, TRITON], 0),
        ([PLAIN, BackendTrial("X", {}, REFUSED, "why")], 0),
        ([PLAIN, BackendTrial("X", {}, REPLACED, "why")], 1),
        ([PLAIN, BackendTrial("X", {}, FAILS)], 1),
        ([PLAIN, BackendTrial("X", {}, DIES)], 1),
        ([BackendTrial(DEFAULT, {}, REFUSED), TRITON], 1),
        ([], 1),
    ],
)
def test_only_a_refusal_is_not_a_fault(trials: list[BackendTrial], status: int) -> None:
    assert BackendMatrix(trials).status == status


def test_a_backend_is_added_to_the_lanes_own_table() -> None:
    lane = {"attention-config": {"flash_attn_version": 2}, "enforce-eager": True}
    own = {"attention_config": {"mla_prefill_backend": "FLASH_ATTN"}}
    assert with_backend(lane, own) == {
        "attention_config": {"flash_attn_version": 2, "mla_prefill_backend": "FLASH_ATTN"},
        "enforce_eager": True,
    }


def test_default_backend_by_name_shows_the_scatter_of_boots() -> None:
    same = BackendTrial(
        "FLASH_ATTN", {}, SERVES, used="FLASH_ATTN", compared="fp32", tokens_per_s=132.0
    )
    _, line = BackendMatrix([PLAIN, same]).lines()
    assert line.endswith(
        "66% of the default  log: FLASH_ATTN, the default's backend: equal boots differ by this "
        "much here"
    )
