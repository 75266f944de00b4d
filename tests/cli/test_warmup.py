"""`vllm-gates warmup`: what it prints of boots, and what it calls a fault."""

from __future__ import annotations

import pytest
from warmup.test_types import boot, times

from pytest_vllm_gates.cli import warmup
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.warmup.types import WARM


def test_times_are_a_table_of_phases() -> None:
    boots = [boot(30.0), boot(32.0), boot(21.0, WARM), boot(20.0, WARM)]
    assert [*warmup.table(times(*boots))] == [
        "qwen3.5, checkpoint miniature, on lane cpu, vLLM 0.32.0",
        "seconds         cold (2 boots)            warm (2 boots)",
        "environment        0.1",
        "imports           29.0 (28.0 to 30.0)       18.5 (18.0 to 19.0)",
        "first answer       2.0 (2.0 to 2.0)          2.0 (2.0 to 2.0)",
        "total             31.0 (30.0 to 32.0)       20.5 (20.0 to 21.0)",
    ]


def test_slower_boots_are_a_fault_with_its_chance() -> None:
    before = times(*(boot(30.0 + number) for number in range(5)))
    now = times(*(boot(40.0 + number) for number in range(5)))
    (fault,) = warmup.faults(now, before)
    assert fault.startswith("cold: 42.0 s, recorded 32.0 s on 2026-11-26 with vLLM 0.32.0")
    assert "chance 1 in 252" in fault
    assert [*warmup.compared(now, before)] == []
    assert [*warmup.faults(before, now)] == []
    assert [*warmup.compared(before, now)] == ["cold: 32.0 s, recorded 42.0 s on 2026-11-26"]


def test_too_few_boots_are_not_a_fault() -> None:
    before, now = times(boot(30.0), boot(31.0)), times(boot(40.0), boot(41.0))
    assert [*warmup.faults(now, before)] == []
    (line,) = warmup.compared(now, before)
    assert line.endswith("more boots could decide (--boots 5)")


def test_another_machine_is_not_compared() -> None:
    before = times(*(boot(30.0 + number) for number in range(5)), machine="b, 9 cores")
    now = times(*(boot(40.0 + number) for number in range(5)))
    assert [*warmup.faults(now, before)] == []
    assert [*warmup.compared(now, before)] == [
        "recorded on another machine (b, 9 cores): not compared"
    ]


def test_a_health_that_comes_too_soon_is_a_fault() -> None:
    (fault,) = warmup.faults(times(boot(60.0), boot(60.0, first_chat_s=20.0)), None)
    assert fault.startswith("/health answers before the server can serve (1 of 2 boots): the first")
    assert "20.0 s after it, the next 0.5 s" in fault


@pytest.mark.parametrize("value", ["0", "-1", "some"])
def test_a_wrong_number_of_boots_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["warmup", "--model", "qwen3.5", f"--boots={value}"])
    assert f"expected an integer >= 1, got {value!r}" in capsys.readouterr().err
