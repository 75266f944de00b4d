"""KV connectors that lose or mix up what they load, and report nothing."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector


class Silent(ExampleConnector):  # type: ignore[misc]
    """Loads nothing: the blocks keep their old contents."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Leave out what is to be loaded."""
        metadata = self._get_connector_metadata()
        metadata.requests = [request for request in metadata.requests if request.is_store]
        super().start_load_kv(forward_context, **kwargs)


class Shifted(ExampleConnector):  # type: ignore[misc]
    """Loads each token's cache to the place of the next one."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Turn the places of what is loaded by one."""
        for request in self._get_connector_metadata().requests:
            if not request.is_store:
                request.slot_mapping = request.slot_mapping.roll(1)
        super().start_load_kv(forward_context, **kwargs)
