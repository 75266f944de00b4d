"""A scheduler whose prefix cache keeps the names of blocks that it gives to others.

When a block is reused, the prompt that filled it first still finds it, with a neighbour's
content. The fault does not show until a block is reused.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class Keeping(Scheduler):  # type: ignore[misc]
    """vLLM's scheduler, with evictions that are not reported to the cache."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments of a scheduler."""
        super().__init__(*args, **kwargs)
        pool = self.kv_cache_manager.block_pool

        def forget(block: Any) -> bool:
            pool.cached_block_hashes_by_block.pop(block.block_id, ())
            block.reset_hash()
            return False

        pool._maybe_evict_cached_block = forget
