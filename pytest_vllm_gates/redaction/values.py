"""Judges a value by its looks: whether it can be a secret, and how likely it is one."""

from __future__ import annotations

import os
import re
from itertools import pairwise

REDACTED = "[redacted]"
LEAST = 6
"""Characters of the shortest value that can be a secret."""
LEAST_LIKELY = 8
LEAST_BARE = 16

_NUMBER = re.compile(r"[\d.,:]+")
_HARMLESS = frozenset(
    (
        "false", "default", "disabled", "enabled", "undefined", "required", "optional", "missing",
        "not-needed", "not-set", "no-key", "no-key-required", "none-needed", "placeholder",
        "changeme", "password", "secret", "api-key", "api_key", "apikey", "dummy", "dummy-key",
    )
)  # fmt: skip
_LONGEST_HARMLESS = max(map(len, _HARMLESS))
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T \d:.,Z+-]*")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]{1,16}")
_HEX = re.compile(r"(?:0x)?[0-9a-f]+", re.IGNORECASE)
# Identifiers in code, and token names of vLLM's `return_tokens_as_token_ids`.
_CODE = re.compile(
    r"[A-Za-z_]\w*(?:(?:\.|::|->|/)[A-Za-z_]\w*)++|[a-z][a-z0-9]*(?:_[a-z0-9]+)++|token_id:\d+"
)
_RUN = re.compile(r"[A-Za-z0-9]{16,}")
_DIGIT, _LETTER, _SPACE = re.compile(r"\d"), re.compile(r"[^\W\d_]"), re.compile(r"\s")
_SIGN = re.compile(r"[!@#%^&*+=/~]")
_LOWER = re.compile(r"[a-z]{5}")
_MOST_CHANGES = 0.55
_LEAST_BASE64 = 24
_LOOKS_AT = 200


def hides(value: str) -> bool:
    """Return whether a value can be a secret at all; short and common values would match anywhere.

    The path of a file is not a secret, although the file may contain one.
    """
    return (
        len(value) >= LEAST
        and (len(value) > _LONGEST_HARMLESS or value.lower() not in _HARMLESS)
        and (len(value) > len(REDACTED) or value not in REDACTED)
        and _NUMBER.fullmatch(value) is None
        and not (value.startswith("/") and os.path.exists(value))  # noqa: PTH110 - pathlib is slow to import
    )


def like_a_credential(value: str, least: int = LEAST_LIKELY) -> bool:
    """Return whether a value is a word of letters and digits, but not a number, path or code."""
    value = value[:_LOOKS_AT]
    return (
        len(value) >= least
        and _DIGIT.search(value) is not None
        and _LETTER.search(value) is not None
        and _SPACE.search(value) is None
        and not value.startswith(("/", "./", "~", "<", "{", "http://", "https://"))
        and not any(kind.fullmatch(value) for kind in (_NUMBER, _HEX_NUMBER, _DATE, _UUID))
        and not _is_code(value)
        and hides(value)
    )


def like_code(value: str) -> bool:
    """Return whether a value is an identifier, a path or a URL."""
    return _is_code(value) or value.startswith(("/", "http://", "https://"))


def like_words(value: str) -> bool:
    """Return whether a value consists of joined words, like kFp8StaticTensorSym."""
    kinds = [(char.isdigit(), char.isupper(), char.islower()) for char in value[:_LOOKS_AT]]
    changes = sum(before != after for before, after in pairwise(kinds))
    return _LOWER.search(value) is not None and changes < _MOST_CHANGES * (len(kinds) - 1)


def random(value: str) -> bool:
    """Return whether a value has a run of letters of both cases and digits, like keys."""
    return like_a_credential(value, LEAST_BARE) and _has_random_run(value[:_LOOKS_AT])


def odd(value: str) -> bool:
    """Return whether an unquoted value is neither a word of a sentence nor an identifier."""
    value = value[:_LOOKS_AT]
    if not hides(value) or _DATE.fullmatch(value) or _is_code(value):
        return False
    if value.isalpha():
        return len(value) >= LEAST_BARE and not value.islower() and not value.isupper()
    return _DIGIT.search(value) is not None or _SIGN.search(value) is not None


def _is_code(value: str) -> bool:
    if _CODE.fullmatch(value) is None or _has_random_run(value):
        return False
    # Base64 has slashes, too.
    mixed = not value.islower() and _DIGIT.search(value) is not None
    return not ("/" in value and len(value) >= _LEAST_BASE64 and mixed)


def _has_random_run(value: str) -> bool:
    return any(
        not run.islower()
        and not run.isupper()
        and _DIGIT.search(run) is not None
        and _HEX.fullmatch(run) is None
        and not like_words(run)
        for run in _RUN.findall(value)
    )
