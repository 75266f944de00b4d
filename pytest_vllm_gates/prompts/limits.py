"""The limits of one rendering: a checkpoint's template and tokenizer are not trusted.

All are far beyond what the templates of known families need: 40 conversations of up to 124,000
characters take half a second and 20 MiB.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.prompts.types import AGAIN_LIMIT_S, RENDER_LIMIT_S

SECONDS_VARIABLE = "VLLM_GATES_RENDER_SECONDS"
MEMORY_VARIABLE = "VLLM_GATES_RENDER_MIB"
CHARACTERS_VARIABLE = "VLLM_GATES_RENDER_CHARACTERS"

SET_BY = " ({} sets the limit)"

MEMORY_MIB = 1024
"""In addition to the memory of the loaded tokenizer."""
CHARACTERS = 2**21
"""A prompt of so many characters takes pytest at most 300 MB, at one token per character."""
TOTAL_LIMIT_S = 60.0
"""After so many seconds of rendering with one template, each prompt has `AGAIN_LIMIT_S`."""
LOAD_LIMIT_S = 120.0
LOAD_MIB = 4096
"""A vocabulary of 262,000 entries takes less than 1 GiB to load."""
REFUSAL_CHARACTERS = 2000
"""A refusal is cut after so many characters: `raise_exception` takes texts of any length."""
KEPT_CHARACTERS = 2**22
"""Renderings of so many characters together are cached."""


@dataclass(frozen=True)
class RenderLimits:
    """The limits of one prompt."""

    seconds: float = RENDER_LIMIT_S
    again_s: float = AGAIN_LIMIT_S
    """After a template exceeded its time."""
    memory_mib: int = MEMORY_MIB
    characters: int = CHARACTERS

    @classmethod
    def from_environment(cls) -> RenderLimits:
        """Return the limits that the environment sets; raises `UserError` for a wrong value."""
        return cls(
            seconds=float(_positive(SECONDS_VARIABLE, RENDER_LIMIT_S)),
            memory_mib=int(_positive(MEMORY_VARIABLE, MEMORY_MIB)),
            characters=int(_positive(CHARACTERS_VARIABLE, CHARACTERS)),
        )


def _positive(variable: str, default: float) -> float:
    text = os.environ.get(variable)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= len(str(2**31)) and int(text)):
        raise UserError(
            f"{variable}: expected an integer from 1 to 9999999999, got {text[:40]!r}\n"
            f"to use the default, {default:g}, unset it"
        )
    return int(text)
