"""The limits of a rendering can be set in the environment."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.prompts.limits import RenderLimits


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RenderLimits.from_environment() == RenderLimits()
    monkeypatch.setenv("VLLM_GATES_RENDER_SECONDS", "20")
    monkeypatch.setenv("VLLM_GATES_RENDER_MIB", "300")
    monkeypatch.setenv("VLLM_GATES_RENDER_CHARACTERS", "5000")
    expected = RenderLimits(seconds=20.0, memory_mib=300, characters=5000)
    assert RenderLimits.from_environment() == expected


@pytest.mark.parametrize("value", ["", "0", "-1", "ten", "1e3", "٣", "9" * 20])
def test_wrong_limit_is_a_user_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("VLLM_GATES_RENDER_MIB", value)
    with pytest.raises(UserError, match="VLLM_GATES_RENDER_MIB: expected an integer from 1"):
        RenderLimits.from_environment()
