"""The families that have a miniature, and renderers of their prompts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family

NOWHERE = Path("/nonexistent")
MINIATURES = {
    "qwen3.5": "qwen3.5", "glm": "glm-4.7", "deepseek": "deepseek-v3.1", "gemma": "gemma-4",
    "gemma/3": "gemma-3", "llama": "llama-3", "llama/4": "llama-4", "mistral": "mistral",
    "phi": "phi-4", "kimi": "kimi-k2", "minimax": "minimax-m2", "nemotron": "nemotron-3",
    "qwen3-vl": "qwen3-vl",
}  # fmt: skip


class Renderers(contextlib.ExitStack):
    """Renderers of the miniatures that end with the tests of a file."""

    def of(self, name: str, **serve: Any) -> tuple[Family, ReferenceRenderer]:
        checkpoint = Checkpoint(name, str(miniatures.path(MINIATURES[name])))
        renderer = ReferenceRenderer(checkpoint, serve)
        self.callback(renderer.close)
        return families.load(name, NOWHERE), renderer
