"""The markers that no field of an answer may contain, by the model that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.served_family import family_named

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = ("<|", "<\uff5c")
"""Beginnings of special tokens that no text has by chance."""


def markers_of(family: str | None, model: str, project: Path) -> tuple[str, ...]:
    """Return the markers of a family, or of the family that a model's name indicates.

    If the name indicates none, return all families' special tokens that no text has by chance.
    """
    if family:
        return families.load(family, project).markers
    try:
        return family_named(model, project).markers
    except UserError:
        every = (
            token for each in families.load_all(project) for token in each.prompt.special_tokens
        )
        return tuple(dict.fromkeys(token for token in every if token.startswith(SPECIAL)))
