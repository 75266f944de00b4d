"""Every sensible pair is asked, what has failed in releases always, and nothing senseless."""

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
        all(cell.traits[name] in values for name, values in entry.when.items())
        for entry in SHIPPED.senseless
    )


def asked(cell: Cell) -> bool:
    return any(
        (rule.turns, rule.format) == (cell.turns, cell.format) and cell.tools in rule.tools
        for rule in SHIPPED.asked
    )


def pairs(cell: Cell) -> set[Any]:
    return set(itertools.combinations(sorted(cell.traits.items()), 2))


def test_every_pair_that_makes_sense_is_asked() -> None:
    wanted = set().union(
        *(pairs(cell) for cell in every_cell() if asked(cell) and not senseless(cell))
    )
    covered = set().union(*(pairs(cell) for cell in CELLS))
    assert wanted - covered == set()
    assert len(wanted) > 100


def test_pairs_are_not_bought_with_every_combination() -> None:
    assert len(CELLS) < len([cell for cell in every_cell() if asked(cell)]) / 2
    assert len(set(CELLS)) == len(CELLS)


def test_what_has_failed_in_a_release_is_asked() -> None:
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
def test_the_well_known_triples_are_asked(cell: dict[str, str]) -> None:
    plain = {name: values[0] for name, values in SHIPPED.dimensions.items()}
    assert Cell(**{**plain, **cell}) in CELLS


def test_a_request_that_stops_comes_after_the_one_that_does_not() -> None:
    at = {cell: number for number, cell in enumerate(CELLS)}
    for cell in CELLS:
        assert at[cell.unstopped] <= at[cell]


def test_nothing_senseless_is_asked_and_everything_has_its_conversation() -> None:
    assert [other for other in CELLS if senseless(other)] == []
    for cell in CELLS:
        assert SHIPPED.asks(cell).conversation in CONVERSATIONS


def test_every_value_of_every_dimension_is_used() -> None:
    for name, values in SHIPPED.dimensions.items():
        assert {cell.traits[name] for cell in CELLS} == set(values)


def test_the_senseless_and_the_dangerous_speak_of_values_there_are() -> None:
    spoken = [item for entry in SHIPPED.senseless for item in entry.when.items()]
    spoken += [
        (name, (value,))
        for dangerous in SHIPPED.dangerous
        for name, value in dangerous.cell.items()
    ]
    for name, values in spoken:
        assert set(values) <= set(SHIPPED.dimensions[name])


def test_the_same_matrix_is_walked_every_time() -> None:
    assert matrix.load().cells() == CELLS


def body_of(cell: Cell, name: str = "qwen3.5") -> dict[str, Any]:
    rule = SHIPPED.asks(cell)
    return rule.body(cell, CONVERSATIONS[rule.conversation], families.load(name, NOWHERE))


PLAIN = Cell("unset", "undeclared", "text", UNSET, "single")


@pytest.mark.parametrize(
    ("cell", "wanted", "absent"),
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
def test_a_cell_is_asked_as_it_says(cell: Cell, wanted: dict[str, Any], absent: list[str]) -> None:
    body = body_of(cell)
    assert {name: body[name] for name in wanted} == wanted
    assert [name for name in absent if name in body] == []


def test_a_format_is_asked_for_with_its_schema_or_pattern() -> None:
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


def test_reasoning_is_sent_back_only_where_there_was_any() -> None:
    def sent(thinking: str) -> list[str]:
        return [
            message["reasoning"]
            for message in body_of(Cell(thinking, "auto", "text", UNSET, "tool_result"))["messages"]
            if "reasoning" in message
        ]

    assert sent("off") == []
    assert CONVERSATIONS["tool-result"].messages != ()


def test_a_cell_tells_its_values() -> None:
    assert PLAIN.name == ("thinking unset, tools undeclared, format text, stop unset, turns single")
    assert Cell("on", "auto", "text", "never", "multi").unstopped.stop == UNSET


def test_a_conversation_besides_the_matrix_has_a_cell_of_its_own() -> None:
    cell = matrix.cell_of(CONVERSATIONS["tool-one"])
    assert cell == Cell("unset", "auto", "text", UNSET, "tool-one")
    assert matrix.asked_of(cell).conversation == "tool-one"
    assert matrix.cell_of(CONVERSATIONS["thinking-off"]).tools == "undeclared"


def test_what_nothing_asks_for_is_a_mistake_in_the_file() -> None:
    with pytest.raises(UserError, match=r"matrix.toml: no \[\[asked\]\] entry asks for"):
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
def test_a_mistake_in_the_file_is_told(tmp_path: Path, text: str, complaint: str) -> None:
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
