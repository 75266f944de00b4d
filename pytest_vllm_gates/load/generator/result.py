"""Writes the raw responses of a load for `measure`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.files import WriteError, write_whole

if TYPE_CHECKING:
    from pytest_vllm_gates.load.types import DrivenLoad

NOT_WRITTEN = "the load's responses were lost: "


def write(path: str, load: DrivenLoad) -> None:
    """Write the responses of a load; exit with `NOT_WRITTEN` and the reason if that fails."""
    try:
        write_whole(Path(path), pickle.dumps(load), folders=False)
    except WriteError as error:
        sys.exit(f"{NOT_WRITTEN}{error}")
