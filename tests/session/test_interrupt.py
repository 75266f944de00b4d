"""The handler of Ctrl-C and SIGTERM gives Python's own back, but not while a run ends."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.client.sockets import CONNECTIONS
from pytest_vllm_gates.session import interrupt
from pytest_vllm_gates.session.interrupt import PYTHONS_OWN

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _pythons_own_handler() -> Iterator[None]:
    before = {number: signal.signal(number, own) for number, own in PYTHONS_OWN.items()}
    yield
    for number, handler_before in before.items():
        signal.signal(number, handler_before)
    CONNECTIONS.begin()


def handler() -> tuple[interrupt.InterruptHandler, Any]:
    run: Any = SimpleNamespace(interrupted=False)
    made = interrupt.InterruptHandler(run)
    made.install()
    return made, run


@pytest.mark.parametrize("number", PYTHONS_OWN)
def test_handler_of_a_run_that_ended_is_removed(number: int) -> None:
    ours, _ = handler()
    assert signal.getsignal(number) == ours._interrupted
    ours.remove()
    assert signal.getsignal(number) is PYTHONS_OWN[number]


@pytest.mark.parametrize("number", PYTHONS_OWN)
def test_only_the_first_interrupt_is_raised_until_the_process_ends(number: int) -> None:
    ours, run = handler()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert run.interrupted
    ours.remove()
    signal.raise_signal(number)
    signal.raise_signal(number)


@pytest.mark.parametrize("number", PYTHONS_OWN)
def test_interrupt_long_after_the_first_is_raised(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = handler()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    ours.remove()
    monkeypatch.setattr(interrupt, "QUIET_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


@pytest.mark.parametrize("number", PYTHONS_OWN)
def test_next_run_in_one_process_has_its_own_handler(number: int) -> None:
    first, _ = handler()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    first.remove()
    second, run = handler()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert run.interrupted
    second.remove()


@pytest.mark.parametrize("number", PYTHONS_OWN)
def test_handler_of_another_program_stays(number: int) -> None:
    def theirs(*_: object) -> None: ...

    signal.signal(number, theirs)
    ours, _ = handler()
    assert signal.getsignal(number) is theirs
    ours.remove()
    assert signal.getsignal(number) is theirs
