"""The connector that ships loads every second prompt, and reports the blocks of the others once."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_vllm_gates.features import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 4
EXAMPLE = "vllm.distributed.kv_transfer.kv_connector.v1.example_connector"


class Example:
    """vLLM's connector, as far as ours needs it."""

    def __init__(self) -> None:
        self._block_size = BLOCK
        self.metadata = SimpleNamespace(requests=[])
        self.loaded: list[Any] = []

    def _get_connector_metadata(self) -> SimpleNamespace:
        return self.metadata

    def start_load_kv(self, _: Any) -> None:
        self.loaded += self.metadata.requests


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> Any:
    parts = EXAMPLE.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
    sys.modules[EXAMPLE].ExampleConnector = Example  # type: ignore[attr-defined]
    monkeypatch.syspath_prepend(catalog.OVERLAY)
    monkeypatch.delitem(sys.modules, "vllm_gates_failing_connector", raising=False)
    return importlib.import_module("vllm_gates_failing_connector").FailingConnector()


def request(blocks: Sequence[int], *, is_store: bool = False) -> SimpleNamespace:
    slots = [block * BLOCK + at for block in blocks for at in range(BLOCK)]
    return SimpleNamespace(slot_mapping=np.array(slots), is_store=is_store)


def test_every_second_load_fails_and_is_reported_once(connector: Any) -> None:
    first, stored, second, third = (
        request([3, 4]), request([5], is_store=True), request([6]), request([9, 7]),
    )  # fmt: skip
    connector.metadata.requests = wanted = [first, stored, second, third]
    connector.start_load_kv(None)
    assert connector.loaded == [stored, second]
    assert connector.metadata.requests is wanted
    assert connector.get_block_ids_with_load_errors() == {3, 4, 7, 9}
    assert connector.get_block_ids_with_load_errors() == set()
