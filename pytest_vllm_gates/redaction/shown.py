"""Environments and command lines without their secrets."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING

from pytest_vllm_gates.redaction.redactor import REDACTED, SECRET_NAME, Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# vLLM's flags that take a secret; `max_num_batched_tokens` is none.
SECRET_FLAGS = frozenset({"api_key", "hf_token"})
ASSIGNED = re.compile(r"((?:--env=|-e)?([A-Za-z_]\w*)=)(.+)", re.DOTALL)
_KEY = secrets.token_bytes(16)


def redacted(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with every value that may be a secret replaced."""
    shapes = Redactor()
    return {
        name: REDACTED if SECRET_NAME.search(name) else shapes.text(value)
        for name, value in environment.items()
    }


def redacted_words(words: Sequence[str]) -> Iterator[str]:
    """Yield a command line's words without secrets: those of flags, and of variables handed on."""
    shapes, before = Redactor(), ""
    for word in words:
        flag, equals, _ = word.partition("=")
        if is_secret_flag(before) and not word.startswith("-"):
            yield REDACTED
        elif equals and is_secret_flag(flag):
            yield f"{flag}={REDACTED}"
        elif (match := ASSIGNED.fullmatch(word)) and SECRET_NAME.search(match[2]):
            yield f"{match[1]}{REDACTED}"
        else:
            yield shapes.text(word)
        before = word


def is_secret_flag(name: str) -> bool:
    """Return whether a flag of vLLM's, however it is spelled, takes a secret."""
    return name.lstrip("-").replace("-", "_") in SECRET_FLAGS


def seal(value: str) -> bytes:
    """Return what tells a value from another within this process, and nothing to anybody else."""
    return hashlib.blake2b(value.encode(), key=_KEY).digest()
