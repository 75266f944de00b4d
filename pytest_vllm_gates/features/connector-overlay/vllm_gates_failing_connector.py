"""A KV connector that fails every second load, for the feature `kv-load-fails`.

It is vLLM's ExampleConnector, which keeps the cache of each prompt in files. A load that fails
leaves the blocks as they are and reports them, as vLLM requires of a connector
(`get_block_ids_with_load_errors`, vllm/distributed/kv_transfer/kv_connector/v1/base.py): the server
has to read these prompts itself (`kv_load_failure_policy`).
It imports nothing of this package: it runs in the lane's environment.
"""

# ruff: noqa: INP001 - the folder is on the import path of the server, and is not a package

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector


class FailingConnector(ExampleConnector):  # type: ignore[misc]
    """Loads every second prompt, and reports the blocks of the others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept the arguments that vLLM passes to each connector."""
        super().__init__(*args, **kwargs)
        self._loads = 0
        self._failed: set[int] = set()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Load the prompts that are not to fail."""
        metadata = self._get_connector_metadata()
        wanted = metadata.requests
        metadata.requests = [request for request in wanted if self._is_loaded(request)]
        try:
            super().start_load_kv(forward_context, **kwargs)
        finally:
            metadata.requests = wanted

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the blocks whose load failed since the last call."""
        failed, self._failed = self._failed, set()
        return failed

    def _is_loaded(self, request: Any) -> bool:
        if request.is_store:
            return True
        self._loads += 1
        if self._loads % 2 == 0:
            return True
        self._failed.update((request.slot_mapping // self._block_size).tolist())
        return False
