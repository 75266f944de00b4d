"""A request is sent again unchanged, except for the model's name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.incidents.replay import readdressed


@pytest.mark.parametrize(
    ("body", "due"),
    [
        (b'{"model":"a"}', b'{"model":"b"}'),
        (b'{ "model" :\t"a" , "n": 1}', b'{ "model" :\t"b" , "n": 1}'),
        (b'{"t": [{"model": "a"}], "model": "a"}', b'{"t": [{"model": "a"}], "model": "b"}'),
        (b'{"x": "\\"model\\": \\"a", "model": "a"}', b'{"x": "\\"model\\": \\"a", "model": "b"}'),
        (b'{"model": "\\u0061\\"b"}', b'{"model": "b"}'),
        (b'{"model": 7}', b'{"model": 7}'),
        (b'{"n": 1}', b'{"n": 1}'),
        (b"[1]", b"[1]"),
        (b"no json", b"no json"),
        (b"", b""),
        (b"[" * 100_000, b"[" * 100_000),
    ],
)  # fmt: skip
def test_only_the_models_name_changes(body: bytes, due: bytes) -> None:
    assert readdressed(body, "b") == due


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("model"), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON), st.text(), st.text(), st.booleans())
def test_any_body_can_name_another_model(
    more: dict[str, Any], model: str, model_name: str, tight: bool
) -> None:
    body = {**more, "model": model}
    text = json.dumps(body, ensure_ascii=tight, separators=(",", ":") if tight else None)
    changed = readdressed(text.encode("utf-8", "surrogatepass"), model_name)
    assert json.loads(changed) == {**body, "model": model_name}
