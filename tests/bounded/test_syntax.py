"""TOML and JSON are parsed within limits; every refusal is a `BadSyntaxError`."""

from __future__ import annotations

import datetime
import json
import math
import time
from typing import Any

import pytest

from pytest_vllm_gates.bounded import limits, syntax
from pytest_vllm_gates.bounded.syntax import BadSyntaxError

MIB = 2**20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "nested deeper than 150"),
        ("a = " + "[" * 500 + "]" * 500, "nested deeper than 150"),
        ("a = " + "{a = " * 151 + "1" + "}" * 151, "nested deeper than 150"),
        ("a" + ".a" * 100_000 + " = 1", "nested deeper than 150"),
        ("[a" + ".'b'" * 151 + "]", "nested deeper than 150"),
        ("a = " + "9" * 5000, "too many digits"),
        ("a = nan", "nan is not a finite number"),
        ("a = [-inf]", "inf is not a finite number"),
        ("a = 1e999", "1e999 is not a finite number"),
        ("a = 1\na = 2", "Cannot overwrite a value"),
        ("a = '''" + "x" * 100, "Expected"),
        ("a = 1\x00", "line 1"),
        ("a = 2020-99-99", "line 1"),
        ("a = 0000", "line 1"),
        ('a = "\\ud800"', "not a Unicode scalar value"),
    ],
)
def test_bad_toml_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadSyntaxError, match=message):
        syntax.toml_table(text)


@pytest.mark.parametrize("length", [1, syntax.KEPT_CHARACTERS + 1])
def test_changing_a_table_does_not_change_later_ones(length: int) -> None:
    text = f"# {'x' * length}\n" + "a = [{ b = { c = [1] } }]\nd = 2026-11-26"
    table = syntax.toml_table(text)
    table["a"][0]["b"]["c"].append(2)
    table["a"].append({})
    table["e"] = 1
    assert syntax.toml_table(text) == {
        "a": [{"b": {"c": [1]}}], "d": datetime.date(2026, 11, 26),
    }  # fmt: skip


def test_refusal_of_nan_does_not_depend_on_what_was_read_before() -> None:
    assert math.isnan(syntax.toml_table("a = nan", finite=False)["a"])
    with pytest.raises(BadSyntaxError):
        syntax.toml_table("a = nan")


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("a = '[[[[[" + "[" * 200 + "'", {"a": "[[[[[" + "[" * 200}),
        ("# " + "[" * 200 + "\na = 1", {"a": 1}),
        ('a = """\n"' + "{" * 200 + '"""', {"a": '"' + "{" * 200}),
        ("a = '''" + "[" * 200 + "''''", {"a": "[" * 200 + "'"}),
        ('a = "\\"' + "[" * 200 + '"', {"a": '"' + "[" * 200}),
        ("a = [" + "[]," * 500 + "]", {"a": [[]] * 500}),
        ("a = [" + "1.5," * 500 + "]", {"a": [1.5] * 500}),
        ("a.b.c = 1", {"a": {"b": {"c": 1}}}),
    ],
)
def test_good_toml_is_read(text: str, table: dict[str, Any]) -> None:
    assert syntax.toml_table(text) == table


def test_toml_may_have_infinity_where_it_is_data() -> None:
    assert syntax.toml_table("a = inf", finite=False) == {"a": float("inf")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested deeper than 150"),
        ("[" * 151 + "]" * 151, "nested deeper than 150"),
        ('{"a":' * 151 + "1" + "}" * 151, "nested deeper than 150"),
        ("9" * 5000, "an integer has 5000 digits, more than 40"),
        ("-" + "9" * 41, "digits, more than 40"),
        ('"\\ud800"', "lone surrogate"),
        ('{"\\udfff": 1}', "lone surrogate"),
        ("{", "line 1 column 2"),
        ("", "line 1 column 1"),
        ("nul", "line 1 column 1"),
        ('"\x01"', "Invalid control character"),
        ("[1] 2", "Extra data"),
    ],
)
def test_bad_json_is_refused(text: str, message: str) -> None:
    for data in (text, text.encode()):
        with pytest.raises(BadSyntaxError, match=message):
            syntax.json_value(data, whole=True)


@pytest.mark.parametrize("text", ["[NaN]", "[Infinity]", "[-Infinity]", "[1e999]", "[-1e400]"])
def test_numbers_that_are_not_finite_can_be_refused(text: str) -> None:
    syntax.json_value(text)
    with pytest.raises(BadSyntaxError, match="is not a finite number"):
        syntax.json_value(text, finite=True)


def test_duplicate_key_can_be_refused() -> None:
    assert syntax.json_value('{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(BadSyntaxError, match="the key 'b' is given twice"):
        syntax.json_value('[{"a": 1, "b": 2, "b": 3}]', unique=True)


@pytest.mark.parametrize(
    "value",
    [
        [], {"a": [1, 2.5, None, True]}, "\U0001f600", json.loads("[" * 150 + "]" * 150),
        "[" * 1000, '\\"' + "{" * 1000, 1000000000000000019884624838656, -(10**39), ["]" * 200] * 9,
    ],
)  # fmt: skip
def test_good_json_is_read(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert syntax.json_value(text) == value
        assert syntax.json_value(syntax.MARK + text.encode(), unique=True, finite=True) == value


def test_not_utf8_is_named_with_its_offset() -> None:
    with pytest.raises(BadSyntaxError, match="byte 0xfe at offset 4"):
        syntax.json_value(b'"abc\xfe"')


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 4 * MIB, b"[{" * 2 * MIB + b"}]" * MIB, b'"' * 4 * MIB, b"\\" * 4 * MIB,
        (b"[" * 149 + b"]" * 149 + b",") * 4000, b'["' + b"\\u0000" * 500_000 + b'"]',
        b"-" * 4 * MIB, b"9" * 4 * MIB, b"[" + b"1e9999," * 400_000 + b"1]",
    ],
    ids=lambda data: repr(data[:8]),
)  # fmt: skip
def test_json_ends_in_time(data: bytes) -> None:
    begun = time.monotonic()
    with pytest.raises(BadSyntaxError):
        syntax.json_value(data + b"!", finite=True)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"key{number} = 1\n" for number in range(40_000)), "a = [" + "1," * 250_000 + "]",
        "".join(f"[a{number}.b.c]\n" for number in range(32_000)), "[[a]]\n" * 80_000,
        "a." * 250_000, "'" * 500_000, '"' * 500_000, "\\" * 500_000, '"""\n' * 120_000,
        'a = """' + '""x' * 160_000, "[" + " " * 500_000, ". " * 250_000, "# " * 250_000,
    ],
    ids=lambda text: repr(text[:8]),
)  # fmt: skip
def test_toml_of_the_largest_size_ends_in_time(text: str) -> None:
    assert len(text) <= limits.TOML_BYTES
    begun = time.monotonic()
    with pytest.raises(BadSyntaxError):
        syntax.toml_table(text + "\n!")
    assert time.monotonic() - begun < 4
