"""JSON that is too deep to parse ends no gate."""

from __future__ import annotations

from pytest_vllm_gates.prompts.types import _arguments
from pytest_vllm_gates.robustness.client import _is_completion, _message

DEEP = "[" * 100_000


def test_deep_json_is_neither_error_nor_completion_nor_arguments() -> None:
    assert _message(DEEP) is None
    assert not _is_completion(DEEP)
    assert _arguments({"function": {"arguments": DEEP}}) == {}
