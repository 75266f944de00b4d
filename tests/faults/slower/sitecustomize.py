"""Makes vLLM's engine slower by a share of every step, in each Python process that loads it.

`$VLLM_GATES_TEST_SLOWER` is the share. It keeps the processor busy meanwhile: sleeping would leave
more of it to the rest of the server.
"""

import functools
import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import  # the lane's overlay is on the path, too

SHARE = float(os.environ.get("VLLM_GATES_TEST_SLOWER", "0"))


def slower(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the step of an engine with its share of time added."""

    @functools.wraps(step)
    def taking_longer(*args: Any, **keywords: Any) -> Any:
        began = time.perf_counter()
        result = step(*args, **keywords)
        busy_until = time.perf_counter() + SHARE * (time.perf_counter() - began)
        while time.perf_counter() < busy_until:
            pass
        return result

    return taking_longer


def patch(core: ModuleType) -> None:
    """Make an engine's steps slower."""
    for name in ("step", "step_with_batch_queue"):
        setattr(core.EngineCore, name, slower(getattr(core.EngineCore, name)))


if SHARE:
    after_import("vllm.v1.engine.core", patch)
