"""A stream passes on no secret in pieces, and delays nothing forever."""

from __future__ import annotations

import io

from hypothesis import given, strategies as st

from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.redaction.stream import LONGEST_LINE, CleanText, Stream
from pytest_vllm_gates.redaction.values import REDACTED
from redaction.secret_values import OPENAI, VALUES


@given(
    VALUES,
    st.lists(st.sampled_from(["letmein", " ", "\n", "\r", "x", f"Bearer {OPENAI}", "VALUE", "é"])),
    st.lists(st.integers(0, 200)),
)
def test_any_split_of_a_stream_redacts_like_the_whole(
    value: str, words: list[str], cuts: list[int]
) -> None:
    redactor = Redactor([value])
    data = "".join(words).replace("VALUE", value).encode()
    stream, clean, begin = Stream(redactor), b"", 0
    for end in [*sorted(cuts), len(data)]:
        clean += stream.feed(data[begin:end])
        begin = max(begin, end)
    assert clean + stream.end() == redactor.data(data)


def test_a_secret_in_a_line_that_never_ends_is_not_passed_on() -> None:
    stream = Stream(Redactor(["correct-horse-9"]))
    output = b""
    for _ in range(3):
        output += stream.feed(b"." * (LONGEST_LINE - 5) + b"correct-")
        output += stream.feed(b"horse-9")
    assert output, "it is not kept back forever"
    output += stream.end()
    assert output.count(REDACTED.encode()) == 3
    assert b"horse" not in output


def test_printed_text_is_passed_on_line_by_line() -> None:
    file = io.StringIO()
    clean = CleanText(file, Redactor(["correct-horse-9"]))
    assert clean.write("one\ncorrect-") == len("one\ncorrect-")
    assert file.getvalue() == "one\n"
    print("horse-9\nlast", end="", file=clean, flush=True)
    assert file.getvalue() == f"one\n{REDACTED}\n"
    assert not clean.isatty()
    clean.close()
    assert file.getvalue() == f"one\n{REDACTED}\nlast"
    assert not file.closed
    clean.close()
    assert file.getvalue().endswith("\nlast"), "the rest is written once"


def test_idle_line_is_passed_on_without_its_last_words() -> None:
    stream = Stream(Redactor())
    stream.feed(b"still loading the weights, Authorization: Bearer ")
    assert stream.idle() == b"still loading the weights, "
    assert stream.feed(b"letmein\n") == f"Authorization: Bearer {REDACTED}\n".encode()
    assert stream.idle() == b""
