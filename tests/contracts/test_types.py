"""The requests of the contracts gate are data, and every one of them can be sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.catalog.conversation import load_all
from pytest_vllm_gates.contracts.types import FILE, ContractPlan, load
from pytest_vllm_gates.errors import UserError

NOWHERE = Path("/nowhere")


def test_the_shipped_plan_names_shipped_conversations() -> None:
    plan = load()
    conversation_names = {conversation.name for conversation in load_all(NOWHERE)}
    planned_names = {answer.conversation for answer in plan.answers if answer.conversation}
    assert planned_names <= conversation_names
    assert all(re.fullmatch(r"(GET|POST) /\S+", route) for route in plan.routes)
    assert all(re.compile(pattern) for pattern in plan.unpinned)
    names = [mistake.name for mistake in plan.mistakes]
    assert len(names) == len(set(names))
    assert not {*names} & {answer.name for answer in plan.answers}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ('[[mistakes]]\nname = "a: b"\n', "mistakes.0.name"),
        ('[[answers]]\nname = "chat, whole"\n', "answers.0.name"),
        ('[[mistakes]]\nname = "a"\nkey = "other"\n', "'right', 'wrong' or 'none'"),
        ("[metrics]\n", "unknown key 'metrics'"),
    ],
)
def test_a_fault_in_the_file_is_a_user_error(table: str, sentence: str, tmp_path: Path) -> None:
    text = FILE.read_text(encoding="utf-8")
    head = text[: text.index("[[answers]]")]
    missing_tables = "" if "answers" in table else "[[answers]]\nname = 'x'\n"
    missing_tables += "" if "mistakes" in table else "[[mistakes]]\nname = 'y'\n"
    (tmp_path / "contracts.toml").write_text(head + table + missing_tables, encoding="utf-8")
    with pytest.raises(UserError) as error:
        toml.load(tmp_path / "contracts.toml", ContractPlan)
    assert sentence in str(error.value)
