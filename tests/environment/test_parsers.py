"""Parser names, read from a vLLM that is never imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.environment import parsers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for package, names in (
        ("reasoning", '{"qwen3": 1, "glm45": 2}'),
        ("tool_parsers", '{"hermes": 1}'),
    ):
        folder = tmp_path / "vllm" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"raise RuntimeError\n_TO_REGISTER = {names}\n")
    return tmp_path


def test_a_parser_this_vllm_lacks_is_named_with_the_nearest(site: Path) -> None:
    messages = parsers.unknown([site], {"reasoning_parser": "qwen35", "tool_call_parser": "hermes"})
    assert (
        messages
        == "this vLLM has no reasoning parser 'qwen35'; did you mean 'qwen3'? it knows glm45, qwen3"
    )


@pytest.mark.parametrize(
    "flags",
    [
        {"reasoning_parser": "glm45", "tool_call_parser": "hermes"},
        {},
        {"tool_call_parser": "ours", "tool_parser_plugin": "ours.py"},
    ],
)
def test_known_or_bundled_parser_passes(site: Path, flags: dict[str, str]) -> None:
    assert parsers.unknown([site], flags) is None


def test_vllm_without_parser_tables_is_not_checked(tmp_path: Path) -> None:
    assert parsers.unknown([tmp_path], {"reasoning_parser": "anything"}) is None
