"""A tape keeps requests part by part, within its limits."""

from __future__ import annotations

import tracemalloc

import pytest

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


@pytest.mark.parametrize(
    ("body", "pieces"),
    [
        (b"x" * 10_000, ()),
        (b"", ((0.1, b"a" * 5000), (0.25, b""), (0.5, b"\x00\xff" * 3000))),
        (b"ask", tuple((number / 7, b"data: %d\n\n" % number) for number in range(500))),
    ],
)
def test_a_large_send_is_returned_as_it_was(
    body: bytes, pieces: tuple[tuple[float, bytes], ...]
) -> None:
    large = Sent("POST", "/v1/x", {"host": "h"}, body, "a", 200, {"date": "d"}, pieces, "broke", 3)
    tape = Tape()
    tape.keep(large)
    assert tape.of() == [large] == tape.of()


def test_a_tape_takes_less_memory_than_its_sends() -> None:
    chunk = b'data: {"id": "chatcmpl-%d", "choices": [{"delta": {"content": "word"}}]}\n\n'
    tape = Tape()
    tracemalloc.start()
    try:
        for _ in range(50):
            pieces = tuple((number / 9, chunk % number) for number in range(200))
            tape.keep(Sent("POST", "/v1/x", {}, b"word " * 20_000, pieces=pieces))
        del pieces
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < sum(sent.size for sent in tape.of()) / 10


def test_the_limits_count_what_reading_takes() -> None:
    tape = Tape(part_bytes=3_000_000)
    for name in "abcd":
        tape.keep(sent(name, 1_000_000))
    assert names(tape) == "cd"
    assert tape.lost == {"": 2}
