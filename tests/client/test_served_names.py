"""A model's names are only the names with its root."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.client.served_names import served_names

QWEN = [{"id": "qwen", "root": "/m"}, {"id": "qwen-1", "root": "/m"}, {"id": "a", "root": "/l"}]


@pytest.mark.parametrize(
    ("models", "asked", "names"),
    [
        (QWEN, "qwen-1", ("qwen-1", "qwen")),
        (QWEN, "a", ("a",)),
        ([{"id": "qwen"}, {"id": "other"}], "qwen", ("qwen",)),
        (QWEN, "unlisted", ("unlisted",)),
    ],
)
def test_names_of_one_root_are_one_models(
    models: list[dict[str, Any]],
    asked: str,
    names: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": models})

    transport = httpx.MockTransport(answer)
    monkeypatch.setattr(
        http, "client", lambda _: httpx.Client(transport=transport, base_url="http://server")
    )
    assert served_names(Endpoint("http://server/v1", asked)) == names
