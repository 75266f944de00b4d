"""Changes of good files, as hypothesis draws them: bytes, pieces, values of JSON and TOML."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from hypothesis import strategies as st

TOKENS = [
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b'"', b"'", b"\\", b"{", b"}", b"[",
    b"]", b"[" * 200, b'{"a":' * 200, b"NaN", b"nan", b"-inf", b"Infinity", b"1e999", b"-1", b"0",
    b"9" * 5000, b"9" * 30, b"-0.0", b"null", b"true", b"[]",
    b"{}", b'""', b"\x1b[2J", b"\xe2\x80\xae",
    b"\xe2\x80\x8b", b"(a+)+$", b"(", b"a{99999999999}", b".*", b"*", b"../../etc/passwd", b"-x",
    b"\\ud800", b"golden 10", b"A" * 3000, b",", b":", b"=", b"#", b"%s", b"$(id)", b"2026-99-99",
    b"--", b'"""', b"'''", b"\xed\xa0\x80", b"\x1f\x8b\x08", b"http://[", b"$'\\U7fffffff'",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**39), 1.5, -0.0, 1e308, "", "x", "\0",
    "\x1b[31m", "\u202e", "\u200b", "(a+)+$", "*", "9" * 400, "../../x", [], [[]], {}, {"": None},
    [None], ["a", 1], float("nan"), float("inf"), "2026-01-01", "x" * 3000, [0] * 50,
    {"a": {"b": []}},
]  # fmt: skip
NUMBER = re.compile(rb"\d+(?:\.\d+)?")
POSITIONS = st.integers(0, 2**32)


@st.composite
def edited(draw: st.DrawFn, sample: bytes) -> bytes:
    """Return a file with one to four pieces changed."""
    data = sample
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(POSITIONS) % (len(data) + 1)
        length = draw(st.sampled_from([0, 0, 1, 1, 2, 4, 20, 400]))
        piece = draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=8), st.just(b"copy")))
        if piece == b"copy":
            piece = data[begin : begin + length] * draw(st.integers(2, 50))
        data = data[:begin] + piece + data[begin + length :]
    return data


@st.composite
def renumbered(draw: st.DrawFn, sample: bytes) -> bytes:
    """Return a file with one of its numbers replaced."""
    numbers = list(NUMBER.finditer(sample))
    if not numbers:
        return sample
    match = numbers[draw(POSITIONS) % len(numbers)]
    return sample[: match.start()] + draw(st.sampled_from(TOKENS)) + sample[match.end() :]


@st.composite
def revalued(draw: st.DrawFn, sample: bytes) -> bytes:
    """Return JSON with one or two of its values replaced, left out, or given a neighbour."""
    value = json.loads(sample)
    for _ in range(draw(st.integers(1, 2))):
        places = list(_places(value))
        if not places:
            break
        container, key = places[draw(POSITIONS) % len(places)]
        action = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
        new = copy.deepcopy(draw(st.sampled_from(VALUES)))
        if action == "remove":
            del container[key]
        elif action == "add" and isinstance(container, dict):
            container[f"{key}\u200b"] = new
        else:
            container[key] = new
    return json.dumps(value).encode()


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in [*items] if isinstance(value, dict | list) else ():
        yield value, key
        yield from _places(member) if isinstance(member, dict | list) else ()


@st.composite
def _relined(draw: st.DrawFn, sample: bytes) -> bytes:
    lines = sample.splitlines(keepends=True)
    at = draw(POSITIONS) % len(lines)
    lines[at] = draw(revalued(lines[at])) + b"\n"
    return b"".join(lines)


def changed(sample: bytes, kind: str) -> st.SearchStrategy[bytes]:
    """Return files that a good file of a kind becomes."""
    strategies = [edited(sample), renumbered(sample), st.binary(max_size=200)]
    if kind == "json":
        strategies += [revalued(sample), revalued(sample)]
    if kind == "lines":
        strategies += [_relined(sample), _relined(sample)]
    return st.one_of(strategies)
