"""A project's own families and conversations are added to the shipped ones or replace them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import conversation, family
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

QWEN = (family.SHIPPED / "qwen3.5.toml").read_text()


def write(project: Path, name: str, text: str) -> Path:
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_the_shipped_family_is_found(tmp_path: Path) -> None:
    loaded = family.load("Qwen-3.5", tmp_path)
    assert (loaded.name, loaded.title) == ("qwen3.5", "Qwen 3.5")
    assert {"<think>", "</think>", "<|im_end|>", "<tool_call>"} <= set(loaded.markers)


def test_project_family_file_replaces_the_shipped_one(tmp_path: Path) -> None:
    write(tmp_path, "families/qwen3.5.toml", QWEN.replace('title = "Qwen 3.5"', 'title = "Ours"'))
    assert family.load("qwen3.5", tmp_path).title == "Ours"


def test_a_new_family_is_one_new_file(tmp_path: Path) -> None:
    write(tmp_path, "families/house-model.toml", QWEN)
    assert family.load("House Model", tmp_path).name == "house-model"
    assert "house-model" in family.files(tmp_path)


def test_unknown_family_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown family 'qwne3\.5'; did you mean 'qwen3\.5'\?"):
        family.load("qwne3.5", tmp_path)


def test_typo_in_a_family_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "families/mine.toml", QWEN.replace("switch =", "swich =", 1))
    line = 1 + QWEN[: QWEN.index("\nswitch =") + 1].count("\n")
    with pytest.raises(UserError) as caught:
        family.load("mine", tmp_path)
    assert f"{path}:{line}: unknown key 'thinking.swich'; did you mean 'switch'?" in str(
        caught.value
    )


def test_weights_folder_is_relative_to_the_family_file(tmp_path: Path) -> None:
    text = QWEN.replace('miniature = "qwen3.5"', 'folder = "../weights"')
    write(tmp_path, "families/mine.toml", text)
    folders = [
        checkpoint.folder
        for checkpoint in family.load("mine", tmp_path).checkpoints
        if checkpoint.folder
    ]
    assert folders == [str(tmp_path / "weights")]


def test_a_checkpoint_with_two_sources_is_refused(tmp_path: Path) -> None:
    text = QWEN.replace('miniature = "qwen3.5"', 'miniature = "qwen3.5"\nhub = "a/b"')
    path = write(tmp_path, "families/mine.toml", text)
    with pytest.raises(UserError, match="needs exactly one of hub, folder and miniature") as caught:
        family.load("mine", tmp_path)
    assert str(caught.value).startswith(f"{path}:")


def test_a_full_checkpoint_gets_every_question(tmp_path: Path) -> None:
    text = QWEN.replace('miniature = "qwen3.5"', 'hub = "a/b"\nuntaught = ["digit"]')
    path = write(tmp_path, "families/mine.toml", text)
    with pytest.raises(UserError, match="untaught is for miniatures alone") as caught:
        family.load("mine", tmp_path)
    assert str(caught.value).startswith(f"{path}:")


@pytest.mark.parametrize("state", ["on", "off"])
def test_thinking_uses_the_keyword_of_the_family(tmp_path: Path, state: str) -> None:
    loaded = family.load("qwen3.5", tmp_path)
    assert loaded.thinking_kwargs(state) == {"enable_thinking": state == "on"}  # type: ignore[arg-type]
    assert loaded.thinking_kwargs("unset") == {}
    deaf = loaded.model_copy(update={"thinking": None})
    assert deaf.thinking_kwargs(state) == {}  # type: ignore[arg-type]


def test_shipped_conversations_have_titles_and_messages(tmp_path: Path) -> None:
    shipped = conversation.load_all(tmp_path)
    assert {"plain", "tool-one", "multi-turn"} <= {each.name for each in shipped}
    assert all(each.title and each.messages for each in shipped)


def test_project_conversation_is_added_or_replaces_a_shipped_one(tmp_path: Path) -> None:
    text = 'title = "{}"\n[[messages]]\nrole = "user"\ncontent = "Hi"\n'
    before = len(conversation.load_all(tmp_path))
    write(tmp_path, "conversations/plain.toml", text.format("ours"))
    write(tmp_path, "conversations/extra.toml", text.format("more"))
    loaded = {entry.name: entry.title for entry in conversation.load_all(tmp_path)}
    assert (loaded["plain"], loaded["extra"], len(loaded)) == ("ours", "more", before + 1)


def test_typo_in_a_conversation_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "conversations/x.toml", 'title = "x"\nthinkin = "on"\nmessages = []\n')
    with pytest.raises(UserError) as caught:
        conversation.load_all(tmp_path)
    assert str(caught.value) == f"{path}:2: unknown key 'thinkin'; did you mean 'thinking'?"


def test_thinking_of_a_conversation_is_on_off_or_unset(tmp_path: Path) -> None:
    write(tmp_path, "conversations/x.toml", 'title = "x"\nthinking = "maybe"\nmessages = []\n')
    with pytest.raises(UserError, match=r"x\.toml:2: thinking: .*'on', 'off' or 'unset'.*'maybe'"):
        conversation.load_all(tmp_path)
