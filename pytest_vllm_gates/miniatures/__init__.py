"""The miniatures: tiny checkpoints of the families' real architectures, and what builds them.

This module and `dialogues` need neither torch nor transformers; everything that does is
imported by `python -m pytest_vllm_gates.miniatures build` alone.
"""

from pytest_vllm_gates.miniatures.checkpoint import path
from pytest_vllm_gates.miniatures.recipe import MiniatureError, names

__all__ = ["MiniatureError", "names", "path"]
