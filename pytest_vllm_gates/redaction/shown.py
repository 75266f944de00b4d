"""Environments and command lines without their secrets."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.redaction.names import names_a_secret, surely_names_a_secret
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.redaction.values import REDACTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ASSIGNED = re.compile(r"((?:--env=|-e)?([A-Za-z_]\w*)=)(.+)", re.DOTALL)
_KEY = secrets.token_bytes(16)


def redacted(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with every value that may be a secret replaced."""
    shapes = Redactor()
    return {
        name: REDACTED if names_a_secret(name) else shapes.text(value)
        for name, value in environment.items()
    }


def redacted_words(words: Sequence[str]) -> Iterator[str]:
    """Yield a command line's words without secrets, in flags and in passed variables."""
    shapes, before = Redactor(), ""
    for word in words:
        flag, equals, _ = word.partition("=")
        if before.startswith("-") and is_secret_flag(before) and not word.startswith("-"):
            yield REDACTED
        elif equals and word.startswith("-") and is_secret_flag(flag):
            yield f"{flag}={REDACTED}"
        elif (match := ASSIGNED.fullmatch(word)) and names_a_secret(match[2]):
            yield f"{match[1]}{REDACTED}"
        else:
            yield shapes.text(word)
        before = word


def redacted_value(name: str, value: Any) -> Any:
    """Return a flag's value, possibly a nested table, without its secrets."""
    if is_secret_flag(name):
        return REDACTED
    return Redactor().json({name: value})[name]


def without_secrets(
    table: Mapping[str, Any], is_secret: Callable[[str], bool], within: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """Return a table and its nested tables without secrets, and the secrets' dotted names.

    A value is a secret if `is_secret` is true for its name, or if it looks like one.
    """
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in table.items():
        if isinstance(value, dict):
            kept[name], names = without_secrets(value, is_secret, f"{within}{name}.")
            left_out += names
        elif is_secret(name) or redacted_value(name, value) != value:
            left_out.append(f"{within}{name}")
        else:
            kept[name] = value
    return kept, left_out


def is_secret_flag(name: str) -> bool:
    """Return whether a flag of vLLM, in any spelling, takes a secret."""
    return surely_names_a_secret(name.lstrip("-"))


def seal(value: str) -> bytes:
    """Return a keyed hash, which distinguishes values within this process and reveals nothing."""
    return hashlib.blake2b(value.encode(), key=_KEY).digest()
