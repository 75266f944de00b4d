"""YAML parsed within limits: bytes, depth, and no aliases, which can expand to any size."""

from __future__ import annotations

from typing import Any

import yaml

from pytest_vllm_gates.bounded import limits
from pytest_vllm_gates.bounded.syntax import BadSyntaxError

MOST_CHARACTERS = 256 * limits.KIB
"""The parser takes seconds for a megabyte; a server's config has a few kilobytes."""


def mapping(text: str) -> dict[str, Any]:
    """Return the mapping of a YAML text, its names as text; raises `BadSyntaxError`."""
    if len(text) > MOST_CHARACTERS:
        size = limits.amount(len(text))
        raise BadSyntaxError(f"{size} of YAML is more than {limits.amount(MOST_CHARACTERS)}")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise BadSyntaxError(f"line {line}: aliases are not read")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > limits.DEPTH:
                raise BadSyntaxError(f"nested more than {limits.DEPTH} deep")
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, BadSyntaxError):
            raise
        raise BadSyntaxError(_place(error)) from error
    if not isinstance(value, dict):
        raise BadSyntaxError("expected `name: value` lines")
    return {str(name): each for name, each in value.items()}


def _place(error: Exception) -> str:
    """Return the fault, with its line if the parser gives one."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)
