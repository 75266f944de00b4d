"""The LoRA adapters that ship with miniatures: their files, and whether they are complete."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.checkpoints.miniatures import HERE, RECIPES, MiniatureError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FOLDER = HERE / "adapters"
RECIPE = "adapters.toml"


@dataclass(frozen=True)
class AdapterRecipe:
    """One adapter of a miniature: the beginning of its answers, and the layers that it changes."""

    name: str
    begins: str
    """The word that its answers begin with. It must consist of tokens that the miniature writes:
    unused tokens are so alike that an adapter this small cannot select one of them."""
    rank: int
    alpha: int
    """Its updates are scaled by alpha / rank."""
    modules: tuple[str, ...]
    """The last part of the changed layers' names, as in PEFT's `target_modules`."""
    skip: tuple[str, ...] = ()
    """Dialogues that it is not taught."""


def recipes(miniature: str) -> tuple[AdapterRecipe, ...]:
    """Return the adapters of a miniature; most have none."""
    file = RECIPES / miniature / RECIPE
    if not file.is_file():
        return ()
    try:
        return tuple(
            AdapterRecipe(name=name, **_tuples(values))
            for name, values in tomllib.loads(file.read_text(encoding="utf-8")).items()
        )
    except TypeError as error:
        raise MiniatureError(f"{file}: {error}\ncompare it with the other recipes") from None


def paths(miniature: str) -> dict[str, Path]:
    """Return the folders of a miniature's adapters by name, their files checked."""
    folders = {one.name: FOLDER / miniature / one.name for one in recipes(miniature)}
    for folder in folders.values():
        miniatures.check(miniature, folder, "adapters")
    return folders


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
