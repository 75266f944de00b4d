"""The draft heads of miniatures: their files, and whether they are complete."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.checkpoints.miniatures import HERE, RECIPES, MiniatureError
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint

FOLDER = HERE / "draft_heads"
RECIPE = "draft_head.toml"


@dataclass(frozen=True)
class DraftHeadRecipe:
    """The head of a miniature: one decoder layer that predicts the tokens after the next one."""

    intermediate_size: int
    """The size of its feed-forward network. All other sizes are the miniature's."""
    steps: int
    """Optimizer steps of its training."""
    learning_rate: float


def recipe(miniature: str) -> DraftHeadRecipe | None:
    """Return the recipe of a miniature's head; None if it has no head."""
    file = RECIPES / miniature / RECIPE
    if not file.is_file():
        return None
    try:
        return DraftHeadRecipe(**tomllib.loads(file.read_text(encoding="utf-8")))
    except TypeError as error:
        raise MiniatureError(f"{file}: {error}\ncompare it with the other recipes") from None


def path(miniature: str) -> Path | None:
    """Return the folder of a miniature's head, its files checked; None without a head."""
    if recipe(miniature) is None:
        return None
    folder = FOLDER / miniature
    miniatures.check(miniature, folder, "draft-head")
    return folder


def of(checkpoint: Checkpoint) -> Path | None:
    """Return the head of a checkpoint; None unless it is a miniature with a head.

    Raises `UserError` for a head that is not whole.
    """
    folder = checkpoint.folder
    if folder is None or folder.parent != miniatures.CHECKPOINTS:
        return None
    try:
        return path(folder.name)
    except MiniatureError as error:
        raise UserError(str(error)) from error
