"""A tape keeps requests part by part, within its limits."""

from __future__ import annotations

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.client.tape import Tape


def sent(name: str, size: int = 0) -> Sent:
    return Sent("POST", "/v1/x", {}, b"x" * size, name)


def names(tape: Tape, *parts: str) -> str:
    return "".join(send.name for send in tape.of(*parts))


def test_sends_are_kept_by_part() -> None:
    tape = Tape()
    for part, name in (("one", "a"), ("two", "b"), ("one", "c")):
        tape.turn_to(part)
        tape.keep(sent(name))
    assert (names(tape, "one"), names(tape, "two"), names(tape, "three")) == ("ac", "b", "")
    assert tape.parts() == ["two", "one"]
    assert names(tape) == "bac"


def test_a_part_within_another_ends_with_its_block() -> None:
    tape = Tape()
    tape.turn_to("test")
    tape.keep(sent("a"))
    with tape.part("walk"):
        tape.keep(sent("b"))
    tape.keep(sent("c"))
    assert (names(tape, "test"), names(tape, "walk")) == ("ac", "b")


def test_the_oldest_sends_of_a_part_are_dropped_first() -> None:
    tape = Tape(part_bytes=10_000)
    tape.turn_to("one")
    for name in "abcdefgh":
        tape.keep(sent(name, 2000))
    assert names(tape, "one") == "fgh"
    assert tape.lost == {"one": 5}
    assert tape.count == 8


def test_the_last_send_is_kept_however_large() -> None:
    tape = Tape(part_bytes=10, tape_bytes=10)
    tape.keep(sent("a", 5000))
    assert names(tape) == "a"


def test_the_part_idle_longest_is_dropped_first() -> None:
    tape = Tape(tape_bytes=10_000)
    for part, name in (("one", "a"), ("two", "b"), ("one", "c"), ("three", "d")):
        tape.turn_to(part)
        tape.keep(sent(name, 2000))
    assert tape.parts() == ["one", "three"]
    assert tape.lost == {"two": 1}
    tape.forget("one")
    assert names(tape) == "d"
