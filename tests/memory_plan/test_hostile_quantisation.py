"""A quantisation's table from anywhere ends in a size or a sentence, in bounded time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from memory_plan.model_configs import LLAMA_8B
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import Serving
from pytest_vllm_gates.memory_plan.weights import weights

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
MOST_S = 30.0
"""A pattern may take a second for each name."""
GROUP = {"weights": {"num_bits": 4, "type": "int", "group_size": 128}, "targets": ["Linear"]}


def size(**quantisation: Any) -> object:
    return weights(shape_of({**LLAMA_8B, "quantization_config": quantisation}), Serving(), None)


@pytest.mark.parametrize(
    ("quantisation", "says"),
    [
        ({**GPTQ, "dynamic": [1]}, "'dynamic' of the quantisation is [1]; expected a table"),
        ({**GPTQ, "dynamic": "x"}, "'dynamic' of the quantisation is 'x'"),
        ({**GPTQ, "extra_config": 5}, "'extra_config' of the quantisation is 5"),
        ({**GPTQ, "dynamic": {"-:[": {}}}, "'[' is not a regular expression"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_a_table_is_named(quantisation: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as error:
        size(**quantisation)
    assert says in str(error.value)
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(
    "quantisation",
    [
        {**GPTQ, "dynamic": {"+:(.*)*x$": {"bits": 8}}},
        {
            "quant_method": "compressed-tensors", "config_groups": {"a": GROUP},
            "ignore": ["re:(.*)*x$"],
        },
    ],
)  # fmt: skip
def test_a_pattern_that_python_matches_for_hours_ends(quantisation: dict[str, Any]) -> None:
    began = time.monotonic()
    size(**quantisation)
    assert time.monotonic() - began < MOST_S


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.sampled_from(["", "x", "*", "Linear"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
METHODS = ("gptq", "awq", "auto-round", "compressed-tensors", "modelopt", "fp8", "bitsandbytes")
KEYS = (
    "bits", "group_size", "dynamic", "extra_config", "config_groups", "ignore", "exclude_modules",
    "quant_algo", "quantized_layers", "modules_to_not_convert", "weight_block_size", "lm_head",
    "quantization",
)  # fmt: skip


@given(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=4))
def test_no_table_ends_in_an_exception(method: str, table: dict[str, Any]) -> None:
    try:
        size(**{"quant_method": method, "bits": 4, "group_size": 128, **table})
    except UserError as error:
        assert str(error)  # noqa: PT017 - either is an answer
