"""Saves the state of a training in a file, so that an interrupted one can resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pathlib import Path


class TrainingState:
    """Weights, the optimizer's moments and the number of steps, in a file or nowhere."""

    def __init__(self, file: Path | None) -> None:
        """Without a `file` nothing is saved and nothing is found."""
        self._file = file

    def restore(self, model: Any, optimizer: Any) -> int:
        """Load the saved state into a model and its optimizer; return how many steps were taken.

        Raises `RuntimeError` of torch if the weights are of another architecture.
        """
        if self._file is None or not self._file.is_file():
            return 0
        kept = torch.load(self._file, weights_only=True)
        model.load_state_dict(kept["model"])
        if kept["optimizer"]:
            optimizer.load_state_dict(kept["optimizer"])
        return int(kept["steps"])

    def keep(self, model: Any, optimizer: Any, steps: int) -> None:
        """Write everything, whole or not at all."""
        if self._file is None:
            return
        aside = self._file.with_name(f"{self._file.name}.partial")
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
        torch.save(kept, aside)
        aside.replace(self._file)
