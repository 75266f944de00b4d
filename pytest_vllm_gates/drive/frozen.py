"""The inventory beside a frozen lane: what was installed when it was frozen, by checksum."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.environment import installed
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.lane import Lane

FORMAT = "pytest-vllm-gates/frozen-lane"
VERSION = 1


def path_of(file: Path) -> Path:
    """Return where the inventory of the lane in `file` lies, or would."""
    return file.with_name(f"{file.stem}.inventory.json")


def read(lane: Lane) -> dict[str, Any] | None:
    """Return the lane's inventory; None where it has none.

    Raises `UserError` for a file that is no inventory.
    """
    place = path_of(lane.file)
    if lane.form not in ("lock", "python") or not place.is_file():
        return None
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{place}: cannot be read as JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UserError(
            f"{place}: not an inventory of a frozen lane\n"
            f"write it again: vllm-gates lane freeze {lane.name} --force"
        )
    return found


def contents(lane: Lane) -> dict[str, str]:
    """Return the checksum of what each package brought when the lane was frozen."""
    recorded = read(lane) or {}
    return {str(name): str(one) for name, one in (recorded.get("contents") or {}).items()}


def tampered(lane: Lane, folders: Sequence[Path]) -> list[str]:
    """Return the packages in `folders` that are other builds than when the lane was frozen."""
    recorded = contents(lane)
    if not recorded or not folders:
        return []
    found = installed.contents(folders)
    return [name for name in sorted(recorded) if found.get(name, recorded[name]) != recorded[name]]
