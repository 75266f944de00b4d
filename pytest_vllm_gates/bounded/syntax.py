"""TOML and JSON parsed within limits: depth, digits, and no duplicate keys.

Each limit is checked before Python's parser reaches its own, with an error of one type.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_vllm_gates.bounded import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = b"\xef\xbb\xbf"
"""The byte order mark that some editors write first."""
JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
TOML_STRING = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""""{0,2})?'
    r"|'''(?:[^']++|'(?!''))*+(?:''''{0,2})?"
    r'|"(?:[^"\\\n]++|\\.)*+"?|' + r"'[^'\n]*+'?|#[^\n]*+",
    re.DOTALL,
)
DOTTED = re.compile(rf"(?:\.[^.\n=\[\]{{}},]*+){{{limits.DEPTH},}}")
BRACKETS = b"[]{}"
NO_BRACKETS = bytes(set(range(256)) - set(BRACKETS))
STEPS = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
MANY_OPEN = re.compile(rb"[\[{]{%d}" % (limits.DEPTH + 1))
LONG_NUMBER = re.compile(rb"\d{19}")
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
NOT_FINITE = "is not a finite number"
KEPT_TEXTS, KEPT_CHARACTERS = 256, 2**16
"""Size of the cache of parsed TOML texts, and the longest text in it: a run rereads its files."""


class BadSyntaxError(ValueError):
    """Text that is not valid TOML or JSON; the message has the reason."""


def decoded(data: bytes) -> str:
    """Return UTF-8 as text; raises `BadSyntaxError` with the offset of the first wrong byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadSyntaxError(
            f"not UTF-8: byte {data[error.start]:#04x} at offset {error.start} ({error.reason})"
        ) from error


def toml_table(text: str, *, finite: bool = True) -> dict[str, Any]:
    """Return the table of a TOML text, which the caller may change; raises `BadSyntaxError`.

    `finite` refuses `nan` and `inf`.
    """
    if len(text) > KEPT_CHARACTERS:
        return _toml_table(text, finite=finite)
    table: dict[str, Any] = _copied(_kept_table(text, finite=finite))
    return table


@lru_cache(KEPT_TEXTS)
def _kept_table(text: str, *, finite: bool) -> dict[str, Any]:
    return _toml_table(text, finite=finite)


def _copied(value: Any) -> Any:
    """Return a copy of tables and arrays; their other values are immutable."""
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    return value


def _toml_table(text: str, *, finite: bool) -> dict[str, Any]:
    bare = TOML_STRING.sub('""', text)
    if too_deep(bare.encode("utf-8", "replace")) or DOTTED.search(bare):
        raise BadSyntaxError(f"nested deeper than {limits.DEPTH} levels")
    try:
        return tomllib.loads(text, parse_float=_finite if finite else float)
    except RecursionError as error:
        raise BadSyntaxError("nested too deep") from error
    except ValueError as error:
        raise BadSyntaxError(_reason(error)) from error


def json_value(
    data: bytes | str, *, unique: bool = False, finite: bool = False, whole: bool = False
) -> Any:
    """Return the value of a JSON text; raises `BadSyntaxError`.

    `unique` refuses an object with a duplicate key, `finite` NaN and infinities, and `whole` halves
    of characters (lone surrogates), which cannot be encoded as UTF-8.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if too_deep(JSON_STRING.sub(b"", raw)):
        raise BadSyntaxError(f"nested deeper than {limits.DEPTH} levels")
    hooks: dict[str, Any] = {}
    if unique:
        hooks["object_pairs_hook"] = _unique
    if finite:
        hooks |= {"parse_constant": _no_constant, "parse_float": _finite}
    if LONG_NUMBER.search(raw):
        hooks["parse_int"] = _integer
    try:
        text = data if isinstance(data, str) else decoded(data.removeprefix(MARK))
        value = json.loads(text, **hooks)
    except RecursionError as error:
        raise BadSyntaxError("nested too deep") from error
    except ValueError as error:
        raise BadSyntaxError(_reason(error)) from error
    if whole and SURROGATE.search(raw):
        _refuse_surrogates(value)
    return value


def too_deep(text: bytes) -> bool:
    """Return whether the brackets of a text without strings are nested deeper than `DEPTH`."""
    brackets = text.translate(None, NO_BRACKETS)
    if brackets.count(b"[") + brackets.count(b"{") <= limits.DEPTH:
        return False
    if MANY_OPEN.search(brackets):
        return True
    return max(accumulate(map(STEPS.__getitem__, brackets))) > limits.DEPTH


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadSyntaxError(f"{text[:40]} {NOT_FINITE}")
    return value


def _no_constant(name: str) -> NoReturn:
    raise BadSyntaxError(f"{name} {NOT_FINITE}")


def _integer(text: str) -> int:
    digits = len(text.lstrip("-"))
    if digits > limits.DIGITS:
        raise BadSyntaxError(f"an integer has {digits} digits, more than {limits.DIGITS}")
    return int(text)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise BadSyntaxError(f"the key {limits.excerpt(twice)} is given twice")
    return table


def _refuse_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadSyntaxError(
            "a text has half of a character in it (a lone surrogate such as \\ud800)"
        ) from error


def _reason(error: ValueError) -> str:
    if "integer string conversion" in str(error):
        return "an integer has too many digits"
    return str(error)
