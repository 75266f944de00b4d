"""The shapes of secrets (known keys, headers, arguments), and the spellings of a secret value."""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# The shapes of secrets: a text that every match begins with, for a quick search, and a pattern for
# the rest. The secret is the last group, without any the whole match. None
# reaches over the end of a line, so that a log can be redacted line by line.
_Q = r"""\\*["']"""
_QUOTED = rf"""(?:{_Q})?[ \t]*(?:[:=]|,(?=[ \t]*b?{_Q}))[ \t]*b?{_Q}([^"'\\\r\n\[\]]{{6,}})"""
_LISTED = rf"""(?:{_Q})?[ \t]*[:=][ \t]*\[(?!redacted\])([^\[\]\r\n]{{6,}})\]"""
_CODED = r"=(?=[A-Za-z_-]*\d)([A-Za-z0-9_+/=~%-]{6,})(?![\w.(\[])"
_BARE = r"""([^\s"'`,;)(\]}\[{<>$\\-][^\s"'`,;)\]}\[{<>\\]{5,})"""
_NEXT = rf"(?:=|[ \t]+|{_Q}[ \t]*[,:][ \t]*{_Q})"
_PROSE = (
    r"(?!(?:auth\w*|token|scheme|realm|format|header|key|value|argument|option|param\w*|variable|"
    r"needs|should|instead|before|without)s?\b)"
)
_HEADER = rf"""(?:{_Q})?[ \t]*(?:[:=]|,(?=[ \t]*b?{_Q}))[ \t]*b?(?:{_Q})?"""
_SCHEME = r"(?:[Bb]earer|[Bb]asic|[Tt]oken|[Dd]igest|[Aa]pi-?[Kk]ey)[ \t]+"
SHAPES = tuple(
    (text, re.compile(text + pattern, re.ASCII))
    for text, pattern in (
        ("hf_", r"(?<![A-Za-z0-9]hf_)[A-Za-z0-9]{20,}"),
        ("sk-", r"(?<![A-Za-z0-9]sk-)(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}"),
        ("AKIA", r"(?<![A-Za-z0-9]AKIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
        ("ASIA", r"(?<![A-Za-z0-9]ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
        *((f"gh{kind}_", r"(?<![A-Za-z0-9]gh[a-z]_)[A-Za-z0-9]{30,}") for kind in "pousr"),
        ("github_pat_", r"[A-Za-z0-9_]{20,}"),
        ("glpat-", r"[A-Za-z0-9_-]{16,}"),
        ("nvapi-", r"[A-Za-z0-9_-]{16,}"),
        ("AIza", r"(?<![A-Za-z0-9]AIza)[A-Za-z0-9_-]{35}"),
        ("xox", r"[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("eyJ", r"(?<![A-Za-z0-9]eyJ)[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"),
        ("://", r"([^/\s?#\"'<>\\]+)@"),
        ("earer", rf"(?<=[Bb]earer)(?:[ \t]+|%20){_PROSE}([A-Za-z0-9._~+/=%-]{{6,}})"),
        # A header in any spelling: as sent, as JSON, as Python's repr, as a shell's argument.
        (
            "uthorization",
            rf"{_HEADER}(?:{_SCHEME}([^\s\"'\\,\[\]]+)|(?!{_SCHEME})([^\s\"'\\,\[\]]{{6,}}))",
        ),
        ("ookie", rf"(?<=[Cc]ookie){_HEADER}(\w+=[^\"'\\\r\n\[\]]+)"),
        ("api-key", rf"{_NEXT}{_PROSE}{_BARE}"),
        ("api-key", rf"(?:(?<=x-api-key)|(?<=[\"']api-key)):[ \t]*{_BARE}"),
        ("Api-Key", rf"{_HEADER}{_BARE}"),
        ("api_key", rf"(?:{_QUOTED}|{_LISTED}|{_CODED})"),
        ("hf-token", rf"{_NEXT}{_PROSE}{_BARE}"),
        *((f"{kind}_token", _QUOTED) for kind in ("hf", "auth", "access")),
        ("assword", _QUOTED),
        ("secret_", rf"(?:access_)?key(?:{_QUOTED}|{_CODED})"),
        ("API_KEY", rf"={_BARE}"),
        *((f"{kind}_TOKEN", rf"={_BARE}") for kind in ("HF", "HUB", "AUTH", "API", "ACCESS")),
        ("PASSW", rf"(?:OR)?D={_BARE}"),
        ("SECRET", rf"(?:_[A-Z_]+)?={_BARE}"),
        # Signed addresses, such as those a Hub's files are sent from.
        ("ignature=", r"([A-Za-z0-9%_~+/=-]{16,})"),
        (
            "oken=",
            r"(?:(?<=[?&]token=)|(?<=access_token=)|(?<=ecurity-Token=))"
            r"([A-Za-z0-9%_~+/=.-]{6,})",
        ),
        ("key=", r"(?<=[?&]key=)([A-Za-z0-9%_~+/=.-]{6,})"),
    )
)
_UNESCAPED = re.compile(r"[A-Za-z0-9_.-]+")


def spellings(value: str) -> Iterator[str]:
    """Yield the spellings of a value in a file: plain, quoted, escaped, or within base64.

    What has other letters than ASCII's is there twice: in UTF-8 read as Latin-1 too, for bytes are.
    """
    yield from _base64(value.encode())
    for spelling in [value] if _UNESCAPED.fullmatch(value) else _escaped(value):
        yield spelling
        if not spelling.isascii():
            yield spelling.encode().decode("latin-1")


def _escaped(value: str) -> Iterator[str]:
    import html  # noqa: PLC0415 - only for values that are spelled otherwise somewhere
    import json  # noqa: PLC0415
    from urllib.parse import quote, quote_plus  # noqa: PLC0415

    yield value
    for quoted in (quote(value, ""), quote(value), quote_plus(value), quote_plus(value, "/")):
        yield quoted
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), quoted)
    for escaped in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield escaped
        yield json.dumps(escaped)[1:-1]
        yield json.dumps(escaped, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield html.escape(value)
    yield html.escape(value, quote=False)


def _base64(data: bytes) -> Iterator[str]:
    """Yield what base64 has of the data at each of its three places, in both alphabets."""
    for offset in range(3):
        encoded = binascii.b2a_base64(b"\0" * offset + data, newline=False).decode()
        bits = 8 * (offset + len(data))
        # Only characters all of whose bits are the data's.
        inner = encoded[-(-8 * offset // 6) : bits // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
