"""Finds secrets in a text by the names before them: `NAME=x`, `name: x`, `--name x`.

The value follows its name in quotes, in brackets or bare. `names.py` grades the name. If the grade
is low, or the value could be a word of a sentence, the value must look more like a credential.
Every repeat is bounded, or is at the end of its pattern: time is linear.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_vllm_gates.redaction import values
from pytest_vllm_gates.redaction.names import Secrecy, secrecy
from pytest_vllm_gates.redaction.spans import lines_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.redaction.spans import Span

# In lower case; every name of a secret has one of them.
WORDS = (
    "auth", "bearer", "conn", "cookie", "cred", "dsn", "hook", "jwt", "key", "pass", "pat", "pwd",
    "sas", "secret", "sess", "sig", "token",
)  # fmt: skip

_QUOTE = r"""\\{0,4}["'`]"""
_START = r"(?:(?<![\w-])|(?<=\x1b\[\dm)|(?<=\x1b\[\d\dm)|(?<=%[0-9A-F]{2}))"
_NAME = r"(?P<name>[A-Za-z_-][\w-]{1,79}+)"
_PAIR = re.compile(
    rf"{_START}{_NAME}(?P<close>{_QUOTE}|%22)?\]?[ \t]{{0,40}}+"
    rf"(?P<separator>=>|:=|=(?!=)|:(?!:)|%3[AaDd]|,(?=[ \t]{{0,9}}b?{_QUOTE}))[ \t]{{0,40}}+"
    rf"(?P<open>[bru]?(?P<quote>{_QUOTE}))?",
    re.ASCII,
)
_FLAG = re.compile(
    rf"--(?P<name>[A-Za-z][\w-]{{1,79}}+)(?P<close>)"
    rf"(?P<separator>=|[ \t]{{1,40}}+|{_QUOTE}[ \t]{{0,9}}[,:][ \t]{{0,9}}(?={_QUOTE}))"
    rf"(?P<open>[bru]?(?P<quote>{_QUOTE}))?",
    re.ASCII,
)
# A name before a possible separator.
_ANY_NAME = re.compile(
    rf"{_START}(?:(?<=\\)[nrt])?([A-Za-z_-][\w-]{{1,79}}+)(?=[\s\"'`\\\]=:,%]|\Z)", re.ASCII
)
# A field of a JSON body; a field in a text within JSON has escaped quotes.
_FIELD = re.compile(r'(?<!\\)"(?P<name>[\w-]{2,80}+)"\s{0,20}+:\s{0,20}+"')
_FIELD_VALUE = re.compile(r'(?:[^"\\\r\n]|\\.){6,}+')
# A member of a list of names and values, for example a container's env.
_NAMED = re.compile(
    r"""(?:name|key)(?P<q>\\{0,4}["'])[ \t]{0,9}:[ \t]{0,9}(?P=q)(?P<name>[\w-]{2,80}+)(?P=q)"""
    r"""[ \t]{0,9},[ \t]{0,9}(?P=q)value(?P=q)[ \t]{0,9}:[ \t]{0,9}(?P=q)"""
)
_VALUE_FIELD = re.compile(r"""value\\{0,4}["']""")
_LIST = re.compile(r"[\[({](?!redacted\])(?P<value>[^\[\](){}\r\n]{6,400})[\])}]")
_BARE = re.compile(r"""[^\s"'`,;)(\]}\[{<>$\x1b\\-][^\s"'`,;)(\]}\[{<>\x1b\\]{5,200}""")
_MORE = re.compile(r"""[^\s"'`,;)(\]}\[{<>\x1b\\]*+""")
_PROSE = re.compile(
    r"(?:auth\w*|token|scheme|realm|format|header|key|value|argument|option|param\w*|variable|"
    r"needs|should|instead|before|without|expected|must|from|with|requires?)s?(?!\w)",
    re.IGNORECASE,
)
_CALL = re.compile(r"[(\[{]|\.[A-Za-z_]")
_LONG_RUN = re.compile(r"""[^\s"'`,;&)(\]}\[{<>\\]{200}""")
_QUOTED_AT_MOST = 2000
_FEW_NAMES = 16
_BARE_LOOKED_AT = 200


def spans(text: str, names: set[str]) -> Iterator[Span]:
    """Yield the places of secret values in a text; none spans several lines.

    `names` are the names of secrets in it (`names_in`): lines without one are skipped.
    """
    if len(names) > _FEW_NAMES:
        yield from _spans(text)
        return
    for begin, end in {*lines_with(text, names)}:
        for first, last in _spans(text[begin:end]):
            yield begin + first, begin + last


def _spans(text: str) -> Iterator[Span]:
    for pattern in (_PAIR, _FLAG):
        at = 0
        while match := pattern.search(text, at):
            at = match.end()
            grade = secrecy(_plain(match, text))
            if grade is Secrecy.BARE and pattern is _FLAG:
                grade = Secrecy.LIKELY
            if not grade:
                continue
            if span := _value(match, text, grade):
                yield span
                at = span[1]
            elif _LONG_RUN.match(text, at):
                at += _BARE_LOOKED_AT // 2  # a long word of many such names contains no value
    for match in _NAMED.finditer(text) if _VALUE_FIELD.search(text) else ():
        grade = secrecy(match["name"])
        end = _closing(text, match.end(), match["q"])
        if grade and end and _is_quoted_secret(match["name"], text[match.end() : end], grade):
            yield match.end(), end


def fields(text: str) -> Iterator[Span]:
    """Yield the secret values in a JSON body's own fields; texts in it are not searched."""
    for match in _FIELD.finditer(text):
        grade = secrecy(match["name"])
        value = _FIELD_VALUE.match(text, match.end()) if grade else None
        if value and _is_quoted_secret(match["name"], value[0], grade):
            yield value.span()


def names_in(words: str) -> set[str]:
    """Return the names of secrets that may be among these words."""
    folded = words.lower()
    if not any(word in folded for word in WORDS):
        return set()
    return {name for name in {*_ANY_NAME.findall(words)} if secrecy(_named(name))}


def is_secret(name: str, value: str) -> bool:
    """Return whether a field of a table is a secret, by its name and its value."""
    grade = secrecy(name)
    return bool(grade) and _is_quoted_secret(name, value, grade)


def _plain(match: re.Match[str], text: str) -> str:
    r"""Return a name without the `n` of a `\n` before it, and without the dashes of a flag."""
    name, start = match["name"], match.start("name")
    if start and text[start - 1] == "\\" and name[0] in "nrt":
        name = name[1:]
    return _named(name)


def _named(name: str) -> str:
    # `patterns` has a shape for the value after an Authorization header's scheme.
    return "" if name.lower().endswith("authorization") else name.lstrip("-")


def _value(match: re.Match[str], text: str, grade: Secrecy) -> Span | None:
    """Return the place of the value after a name, if it is a secret."""
    if match["open"]:
        return _quoted(match, text, grade)
    if grade is Secrecy.SURE and (members := _LIST.match(text, match.end())):
        inside = members["value"].lstrip()
        quoted = inside.startswith(('"', "'", "\\", "b"))
        return members.span("value") if quoted or values.odd(inside.split(",")[0]) else None
    return _bare(match, text, grade) if match["separator"] != "," else None


def _bare(match: re.Match[str], text: str, grade: Secrecy) -> Span | None:
    at = match.end()
    found = _BARE.match(text, at)
    if found is None or _CALL.match(text, found.end()):
        return None
    value, end = found[0], found.end()
    if not _is_bare_secret(match, value, grade):
        return None
    if len(value) > _BARE_LOOKED_AT:
        end = _MORE.match(text, end).end()  # type: ignore[union-attr]
        value = text[at:end]
    # In a query, and in a query within a query, a value ends before the next field.
    in_query = match.start() and text[match.start() - 1] in "?&"
    for ends in ("&",) if in_query else ("%26", "%0A", "%0a", "%0D", "%0d"):
        value = value.partition(ends)[0]
    return at, at + len(value)


def _quoted(match: re.Match[str], text: str, grade: Secrecy) -> Span | None:
    begin, quote = match.end(), match["quote"]
    end = _closing(text, begin, quote)
    if end and end - begin < (values.LEAST if grade is Secrecy.SURE else values.LEAST_LIKELY):
        return None
    value = text[begin : end or begin + _QUOTED_AT_MOST].partition("\n")[0]
    if match["separator"] == "," and not values.like_a_credential(value):
        return None
    if not _is_quoted_secret(match["name"], value, grade):
        return None
    if not end:  # too long, or cut off: the rest of the line
        ends = [found for found in (text.find(quote, begin), text.find("\n", begin)) if found >= 0]
        end = min(ends, default=len(text))
    return begin, end


def _is_quoted_secret(name: str, value: str, grade: Secrecy) -> bool:
    if values.REDACTED in value or value == name or (value[:1], value[-1:]) == ("<", ">"):
        return False
    if grade is Secrecy.SURE:
        return values.hides(value)
    if grade is Secrecy.LIKELY:
        return values.like_a_credential(value)
    if name.lower().rstrip("s").endswith("key"):
        return values.random(value)
    return values.like_a_credential(value, values.LEAST_BARE)


def _is_bare_secret(match: re.Match[str], value: str, grade: Secrecy) -> bool:
    name, separator = match["name"], match["separator"]
    # The form in a shell or a file of variables: NAME=value.
    assigned = name.isupper() and match[0] == f"{name}="
    if value == name:
        return False
    if grade is Secrecy.BARE:
        return values.like_a_credential(value) if assigned else values.random(value)
    flag = match.re is _FLAG and (match["separator"] == "=" or separator.isspace())
    if (assigned or flag) and grade is Secrecy.SURE:
        return values.hides(value) and _PROSE.match(value) is None
    if assigned:
        return values.hides(value) and not values.like_code(value)
    if grade is Secrecy.SURE:
        return values.odd(value)
    return values.like_a_credential(value) and not values.like_words(value)


def _closing(text: str, begin: int, quote: str) -> int:
    """Return the end of a value in quotes; 0 if its line ends before, or it is too long."""
    last = begin + _QUOTED_AT_MOST
    line_end = text.find("\n", begin, last)
    last = last if line_end < 0 else line_end
    end = text.find(quote, begin, last)
    while end > begin and len(quote) == 1 and text[end - 1] == "\\" and text[end - 2] != "\\":
        end = text.find(quote, end + 1, last)
    return max(end, 0)
