"""A template that is not UTF-8 text is named with its file and byte offset."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from prompts.test_reference import ASKED, folder, made  # noqa: F401 - fixtures
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.prompts import template_files

if TYPE_CHECKING:
    from pathlib import Path

    from prompts.test_reference import Made

WRONG = {
    "Latin-1": ("caf\xe9".encode("latin-1"), "byte 3: 0xe9 is not UTF-8"),
    "cut": ("é".encode()[:1], "byte 0: 0xc3 is not UTF-8"),
    "NUL": (b"a\0b", "byte 1: a NUL byte"),
    "UTF-8 mark": (b"\xef\xbb\xbfa", "byte 0: it begins with the byte-order mark ef bb bf"),
    "UTF-16": ("a".encode("utf-16"), "byte 0: it begins with the byte-order mark ff fe (UTF-16)"),
    "UTF-32": ("a".encode("utf-32"), "(UTF-32)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_checkpoints_template_is_read_as_bytes(
    made: Made,  # noqa: F811 - a fixture
    folder: Path,  # noqa: F811
    name: str,
) -> None:
    data, message = WRONG[name]
    (folder / "chat_template.jinja").write_bytes(data)
    with pytest.raises(UserError) as caught:
        made(None)
    text = str(caught.value)
    assert text.startswith(f"checkpoint weights: {folder / 'chat_template.jinja'}: ")
    assert message in text


@pytest.mark.parametrize("name", WRONG)
def test_template_of_the_flags_is_read_as_bytes(
    made: Made,  # noqa: F811
    tmp_path: Path,
    name: str,
) -> None:
    data, message = WRONG[name]
    own = tmp_path / "own.jinja"
    own.write_bytes(data)
    with pytest.raises(UserError) as caught:
        made(chat_template=str(own))
    assert f"{own}: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("place", ["tokenizer_config.json", "additional_chat_templates/a.jinja"])
def test_other_files_with_templates_are_read_as_bytes(
    made: Made,  # noqa: F811
    folder: Path,  # noqa: F811
    place: str,
) -> None:
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(UserError, match=r"byte 7: 0xe9 is not UTF-8"):
        made()


def test_nul_in_a_template_of_the_configuration_is_named(
    made: Made,  # noqa: F811
    folder: Path,  # noqa: F811
) -> None:
    (folder / "tokenizer_config.json").write_text('{"chat_template": "a\\u0000b"}')
    with pytest.raises(UserError, match="a NUL character at character 1"):
        made(None)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer.json"])
def test_a_fifo_is_not_a_file(made: Made, folder: Path, name: str) -> None:  # noqa: F811
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match=f"{name}: expected a file, got a FIFO"):
        made(None)


def test_a_large_template_is_refused_unread(made: Made, folder: Path) -> None:  # noqa: F811
    with (folder / "chat_template.jinja").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(UserError, match=r"it has 10,000,000,000 bytes, more than the 4 MiB"):
        made(None)


def test_text_of_a_flag_is_its_own_template(made: Made) -> None:  # noqa: F811
    assert template_files.named_by_flag("inline\n") == "inline\n"
    assert made(None, chat_template="in {{ 'é' }}").render(ASKED).text == "in é"
    with pytest.raises(UserError, match=r"the chat_template of \[serve\]: byte 1: a NUL byte"):
        made(None, chat_template="a\0b")
