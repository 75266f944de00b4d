"""An answer that allows one text is that text, or a sentence reports the first difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import conversation as conversations, toml
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.conversations import chosen_texts
from pytest_vllm_gates.conversations.chosen_texts import ChosenTexts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.catalog.family import Family

TEXTS = toml.load(data.FOLDER / "chosen_texts.toml", ChosenTexts).texts
PLAIN = {each.name: each for each in conversations.load_all(Path("/nowhere"))}["plain"]


def asked(qwen: Family, change: Callable[[str], str]) -> list[list[str]]:
    """Return the sentences of each answer of a server that changes texts."""

    def says(body: dict[str, Any]) -> Generation:
        (text,) = body["structured_outputs"]["choice"]
        return Generation(change(text), "")

    with running(ScriptedModel(says)) as server:
        answers = chosen_texts.ask(Chat(server.endpoint, qwen), PLAIN.body(qwen), 500)
    assert len(answers) == 2 * len(TEXTS) == len({each.case.name for each in answers})
    return [list(chosen_texts.changed(each)) for each in answers]


def test_texts_that_arrive_unchanged_have_no_finding(qwen: Family) -> None:
    assert not any(asked(qwen, lambda text: text))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("<", "&lt;", "from character 0 on content is '&lt;b>a & b&lt;/b> &lt; ', and the only "),
        ("\\", "", "from character 2 on content is 'newtable n  u0041 /d+/', and the only choice"),
        ("\t", " ", "from character 1 on content is ' b\\n\\nc\\n  d"),
        ("ไทย", "", "content is ' Ελλάδα'"),
    ],
)
def test_first_difference_is_reported(qwen: Family, old: str, new: str, says: str) -> None:
    sentences = [one for each in asked(qwen, lambda text: text.replace(old, new)) for one in each]
    assert len(sentences) == 2, sentences
    assert all(says in sentence for sentence in sentences)


def test_a_text_that_ends_early_is_reported(qwen: Family) -> None:
    sentences = [one for each in asked(qwen, lambda text: text[:-1]) for one in each]
    assert len(sentences) == 2 * len(TEXTS)
    assert [each for each in sentences if "content is '', and the only choice" not in each] == []
