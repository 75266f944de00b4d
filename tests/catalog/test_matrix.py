"""The matrix covers every sensible pair and past failures, and nothing senseless."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.catalog import (
    conversation as conversations,
    family as families,
    matrix,
    toml,
)
from pytest_vllm_gates.catalog.matrix import UNSET, Cell, ConversationRule, Matrix
from pytest_vllm_gates.errors import UserError

NOWHERE = Path("/nowhere")
SHIPPED = matrix.load()
CELLS = SHIPPED.cells()
CONVERSATIONS = {
    conversation.name: conversation for conversation in conversations.load_all(NOWHERE)
}


def every_cell() -> list[Cell]:
    names = list(SHIPPED.dimensions)
    products = itertools.product(*SHIPPED.dimensions.values())
    return [Cell(**dict(zip(names, values, strict=True))) for values in products]


def senseless(cell: Cell) -> bool:
    return any(
        all(cell.traits[name] in values for name, values in combination.when.items())
        for combination in SHIPPED.senseless
    )


def is_covered(cell: Cell) -> bool:
    return any(
        (rule.turns, rule.format) == (cell.turns, cell.format) and cell.tools in rule.tools
        for rule in SHIPPED.asked
    )


def pairs(cell: Cell) -> set[Any]:
    return set(itertools.combinations(sorted(cell.traits.items()), 2))


def test_every_sensible_pair_is_covered() -> None:
    sensible_pairs = set().union(
        *(pairs(cell) for cell in every_cell() if is_covered(cell) and not senseless(cell))
    )
    covered = set().union(*(pairs(cell) for cell in CELLS))
    assert sensible_pairs - covered == set()
    assert len(sensible_pairs) > 100


def test_pairs_need_few_cells() -> None:
    assert len(CELLS) < len([cell for cell in every_cell() if is_covered(cell)]) / 2
    assert len(set(CELLS)) == len(CELLS)


def test_combinations_that_failed_before_are_covered() -> None:
    plain = {name: values[0] for name, values in SHIPPED.dimensions.items()}
    assert [
        dangerous
        for dangerous in SHIPPED.dangerous
        if Cell(**{**plain, **dangerous.cell}) not in CELLS
    ] == []
    assert all("#" in dangerous.reference for dangerous in SHIPPED.dangerous)


@pytest.mark.parametrize(
    "cell",
    [
        {"thinking": "on", "stop": "never"},
        {"thinking": "on", "stop": "in_reasoning"},
        {"thinking": "on", "format": "json_schema"},
        {"thinking": "off", "tools": "auto"},
        {"thinking": "on", "tools": "auto", "turns": "tool_result"},
        {"thinking": "on", "tools": "named"},
    ],
)
def test_known_triples_are_covered(cell: dict[str, str]) -> None:
    plain = {name: values[0] for name, values in SHIPPED.dimensions.items()}
    assert Cell(**{**plain, **cell}) in CELLS


def test_cell_with_a_stop_follows_its_unstopped_cell() -> None:
    position_of = {cell: number for number, cell in enumerate(CELLS)}
    for cell in CELLS:
        assert position_of[cell.unstopped] <= position_of[cell]


def test_cells_are_sensible_and_have_conversations() -> None:
    assert [each for each in CELLS if senseless(each)] == []
    for cell in CELLS:
        assert SHIPPED.asks(cell).conversation in CONVERSATIONS


def test_every_value_of_every_dimension_is_used() -> None:
    for name, values in SHIPPED.dimensions.items():
        assert {cell.traits[name] for cell in CELLS} == set(values)


def test_senseless_and_dangerous_entries_use_known_values() -> None:
    used_values = [pair for combination in SHIPPED.senseless for pair in combination.when.items()]
    used_values += [
        (name, (value,))
        for dangerous in SHIPPED.dangerous
        for name, value in dangerous.cell.items()
    ]
    for name, values in used_values:
        assert set(values) <= set(SHIPPED.dimensions[name])


def test_matrix_is_deterministic() -> None:
    assert matrix.load().cells() == CELLS


def body_of(cell: Cell, name: str = "qwen3.5") -> dict[str, Any]:
    rule = SHIPPED.asks(cell)
    return rule.body(cell, CONVERSATIONS[rule.conversation], families.load(name, NOWHERE))


PLAIN = Cell("unset", "undeclared", "text", UNSET, "single")


@pytest.mark.parametrize(
    ("cell", "expected", "absent"),
    [
        (PLAIN, {}, ["tools", "tool_choice", "response_format", "structured_outputs", "stop"]),
        (
            Cell("off", "auto", "text", UNSET, "single"),
            {"tool_choice": "auto", "chat_template_kwargs": {"enable_thinking": False}},
            ["response_format"],
        ),
        (Cell("unset", "required", "text", UNSET, "single"), {"tool_choice": "required"}, []),
        (
            Cell("unset", "named", "text", UNSET, "single"),
            {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
            ["chat_template_kwargs"],
        ),
        (Cell("on", "none", "regex", UNSET, "single"), {"tool_choice": "none"}, []),
    ],
)
def test_request_body_follows_the_cell(
    cell: Cell, expected: dict[str, Any], absent: list[str]
) -> None:
    body = body_of(cell)
    assert {name: body[name] for name in expected} == expected
    assert [name for name in absent if name in body] == []


def test_format_is_sent_with_its_schema_or_pattern() -> None:
    for_json = Cell("on", "undeclared", "json_schema", UNSET, "single")
    schema = SHIPPED.asks(for_json).json_schema
    assert schema and schema["type"] == "object"
    assert body_of(for_json)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": True},
    }
    for_regex = Cell("on", "undeclared", "regex", UNSET, "single")
    regex = SHIPPED.asks(for_regex).regex
    assert regex
    assert body_of(for_regex)["structured_outputs"] == {"regex": regex}


def test_reasoning_is_sent_back_only_if_the_cell_thinks() -> None:
    def sent(thinking: str) -> list[str]:
        return [
            message["reasoning"]
            for message in body_of(Cell(thinking, "auto", "text", UNSET, "tool_result"))["messages"]
            if "reasoning" in message
        ]

    assert sent("off") == []
    assert CONVERSATIONS["tool-result"].messages != ()


def test_cell_name_has_its_values() -> None:
    assert PLAIN.name == ("thinking unset, tools undeclared, format text, stop unset, turns single")
    assert Cell("on", "auto", "text", "never", "multi").unstopped.stop == UNSET


def test_extra_conversation_has_its_own_cell() -> None:
    cell = matrix.cell_of(CONVERSATIONS["tool-one"])
    assert cell == Cell("unset", "auto", "text", UNSET, "tool-one")
    assert matrix.asked_of(cell).conversation == "tool-one"
    assert matrix.cell_of(CONVERSATIONS["thinking-off"]).tools == "undeclared"


def test_cell_without_a_rule_is_an_error() -> None:
    with pytest.raises(UserError, match=r"matrix.toml: no \[\[asked\]\] entry matches"):
        SHIPPED.asks(Cell("on", "named", "json_schema", UNSET, "multi"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("dimension = {}\n", "did you mean 'dimensions'"),
        ("[dimensions]\nstop = 'never'\n", "dimensions.stop"),
        ("[[dangerous]]\ncell = {}\nreferences = 'x'\n", "did you mean 'reference'"),
        ("[[senseless]]\nwhen = {}\n", "reason"),
        ("[[asked]]\nturn = 'single'\n", "did you mean 'turns'"),
    ],
)
def test_invalid_matrix_file_is_reported(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "matrix.toml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        toml.load(file, Matrix)
    assert complaint in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_small_matrix_is_covered_in_few_cells() -> None:
    values = {"thinking": ("unset", "on"), "tools": ("undeclared",), "format": ("text",)}
    small = Matrix(
        dimensions={**values, "stop": ("unset", "never"), "turns": ("single",)},
        asked=(
            ConversationRule(
                turns="single", tools=("undeclared",), format="text", conversation="plain"
            ),
        ),
    )
    assert len(small.cells()) == 4
