"""The handler of Ctrl-C gives Python's own back, but not while an interrupted run ends."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.client.sockets import CONNECTIONS
from pytest_vllm_gates.session import interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _pythons_own_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    CONNECTIONS.begin()


def handler() -> tuple[interrupt.InterruptHandler, Any]:
    run: Any = SimpleNamespace(interrupted=False)
    made = interrupt.InterruptHandler(run)
    made.install()
    return made, run


def test_handler_of_a_run_that_ended_is_removed() -> None:
    ours, _ = handler()
    assert signal.getsignal(signal.SIGINT) == ours._interrupted
    ours.remove()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_only_the_first_interrupt_is_raised_until_the_process_ends() -> None:
    ours, run = handler()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert run.interrupted
    ours.remove()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def test_interrupt_long_after_the_first_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = handler()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    ours.remove()
    monkeypatch.setattr(interrupt, "QUIET_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_next_run_in_one_process_has_its_own_handler() -> None:
    first, _ = handler()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    first.remove()
    second, run = handler()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert run.interrupted
    second.remove()


def test_handler_of_another_program_stays() -> None:
    def theirs(*_: object) -> None: ...

    signal.signal(signal.SIGINT, theirs)
    ours, _ = handler()
    assert signal.getsignal(signal.SIGINT) is theirs
    ours.remove()
    assert signal.getsignal(signal.SIGINT) is theirs
