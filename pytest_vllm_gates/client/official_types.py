"""Validates JSON by the types of the official clients, strictly.

The clients `openai` and `anthropic` construct their types without validation, so a field of a wrong
type is not noticed. A client in a typed language, or one that validates, refuses it. The types are
made from the published specifications. Additional fields are allowed.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from pytest_vllm_gates.client.untyped import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic_core import ErrorDetails

# Newer in the specification than some servers: vLLM 0.32 counts it in usage, 0.30 does not.
LATER = {"cache_write_tokens"}
TYPE = "type"
"""The field that distinguishes the members of a union."""


def wrong_fields(official: Any, value: Any) -> Iterator[str]:
    """Yield a sentence for each field of a JSON value that `official`, a type, does not allow.

    `value` is JSON as bytes, or as parsed.
    """
    try:
        text = value if isinstance(value, bytes) else json.dumps(value)
    except (RecursionError, ValueError) as error:
        yield f"the JSON cannot be validated: {error}"
        return
    try:
        _adapter(official).validate_json(text, strict=True)
    except ValidationError as error:
        yield from _sentences(error.errors(include_url=False))


@cache
def _adapter(official: Any) -> TypeAdapter[Any]:
    return TypeAdapter(official)


def _sentences(errors: Sequence[ErrorDetails]) -> Iterator[str]:
    """Yield a sentence for every error, except errors of union members of another type.

    The member whose `type` equals the value's is meant. Without such a member the type is
    unknown.
    """
    others = {error["loc"][:-1]: error for error in errors if _is_of_another_type(error)}
    kept = [error for error in errors if not any(_within(error["loc"], loc) for loc in others)]
    for loc, error in others.items():
        union = loc[:-1]
        members = [each for each in others if len(each) == len(loc) and each[:-1] == union]
        meant = any(_within(other["loc"], union) for other in kept)
        inside = any(_within(union, other) for other in others if other != loc)
        if loc == members[0] and not meant and not inside:
            yield f"{_place(error)} {shown(error['input'])} is not known to the official client"
    for error in kept:
        if not (error["type"] == "missing" and error["loc"][-1] in LATER):
            yield f"{_place(error)}: {error['msg']}, got {shown(error['input'])}"


def _within(loc: Sequence[int | str], outer: Sequence[int | str]) -> bool:
    return tuple(loc[: len(outer)]) == tuple(outer)


def _is_of_another_type(error: ErrorDetails) -> bool:
    return error["type"] == "literal_error" and error["loc"][-1] == TYPE


def _place(error: ErrorDetails) -> str:
    """Return the place of an error, without the names of the types that pydantic tried."""
    fields = [str(part) for part in error["loc"] if isinstance(part, int) or part[:1].islower()]
    return ".".join(part for part in fields if "[" not in part and "(" not in part) or "it"
