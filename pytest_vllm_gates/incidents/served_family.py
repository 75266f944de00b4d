"""The family that answers a request, by the name of the model in it."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family


def family_named(model: str, project: Path) -> Family:
    """Return the family of a model's name; raises `UserError` if no family matches."""
    base = model.rstrip("/").rpartition("/")[2].lower()
    every = list(families.load_all(project))
    for family in every:
        hubs = [(checkpoint.hub or "").lower() for checkpoint in family.checkpoints]
        if base and (model.lower() in (family.name, *hubs) or base in (family.name, *hubs)):
            return family
    fitting = {pattern for family in every for pattern in family.recognise if pattern != "*"}
    best = max(
        (pattern for pattern in fitting if fnmatch(base, pattern.lower())), key=len, default=None
    )
    recognised = next((family for family in every if best and best in family.recognise), None)
    if recognised is None:
        raise UserError(
            f"no family matches the model {model!r}: name the family with --model\n"
            f"known: {', '.join(sorted(families.files(project)))}"
        )
    return recognised
