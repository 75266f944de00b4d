"""What a test saw, kept where the verdict and JUnit find it."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class Evidence(MutableMapping[str, Any]):
    """What a test saw, written down before it asserts. Values are JSON."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._values: dict[str, Any] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        properties = [pair for pair in self._item.user_properties if pair[0] != name]
        self._item.user_properties[:] = [*properties, (name, text)]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __delitem__(self, name: str) -> None:
        del self._values[name]
        self._item.user_properties[:] = [
            pair for pair in self._item.user_properties if pair[0] != name
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
