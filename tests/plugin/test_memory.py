"""A run with `--model` has glibc return freed memory; an ordinary run of pytest is left alone."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.process import allocator


@pytest.mark.parametrize(
    ("arguments", "calls"), [(("--model", "qwen3.5", "--collect-only", "-m", "boot"), 1), ((), 0)]
)
def test_only_a_run_of_gates_sets_the_allocator(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    calls: int,
) -> None:
    called: list[bool] = []
    monkeypatch.setattr(allocator, "return_freed_memory", lambda: called.append(True))
    pytester.runpytest_inprocess(*arguments)
    assert len(called) == calls
