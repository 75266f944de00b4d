"""The matrix of requests that the conversation gates send, read from `matrix.toml`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family

SHIPPED = data.FOLDER / "matrix.toml"
UNSET = "unset"
UNDECLARED = "undeclared"


@dataclass(frozen=True)
class Cell:
    """One combination of a chat request's options; the fields are the matrix's dimensions."""

    thinking: str
    tools: str
    format: str
    stop: str
    turns: str

    @property
    def name(self) -> str:
        """The values, dimension by dimension."""
        return ", ".join(f"{name} {value}" for name, value in self.traits.items())

    @property
    def traits(self) -> dict[str, str]:
        """The values by dimension, as known defects name them."""
        return {
            "thinking": self.thinking,
            "tools": self.tools,
            "format": self.format,
            "stop": self.stop,
            "turns": self.turns,
        }

    @property
    def unstopped(self) -> Cell:
        """The same request without its stop."""
        return replace(self, stop=UNSET)


class ConversationRule(toml.Record):
    """The conversation for a combination of turns, tools and format."""

    turns: str
    tools: tuple[str, ...]
    format: str
    conversation: str
    regex: str | None = None
    json_schema: dict[str, Any] | None = None

    def body(self, cell: Cell, conversation: Conversation, family: Family) -> dict[str, Any]:
        """Return the request's body but for its stop, its model and its sampling."""
        with_thinking = conversation.model_copy(update={"thinking": cell.thinking})
        body = with_thinking.body(family)
        if not with_thinking.thinks(family):
            # A client sends back the reasoning that it received, and it received none.
            body["messages"] = [_without_reasoning(message) for message in body["messages"]]
        if cell.tools == "named":
            name = body["tools"][0]["function"]["name"]
            body["tool_choice"] = {"type": "function", "function": {"name": name}}
        elif cell.tools != UNDECLARED:
            body["tool_choice"] = cell.tools
        if self.regex:
            body["structured_outputs"] = {"regex": self.regex}
        if self.json_schema:
            schema = {"name": "answer", "schema": self.json_schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


class Senseless(toml.Record):
    """A combination left out, and why."""

    reason: str
    when: dict[str, tuple[str, ...]]


class Dangerous(toml.Record):
    """A combination in which a release has failed."""

    cell: dict[str, str]
    reference: str


class Matrix(toml.Record):
    """The dimensions, the conversations, the combinations left out, and those never left out."""

    dimensions: dict[str, tuple[str, ...]]
    asked: tuple[ConversationRule, ...]
    senseless: tuple[Senseless, ...] = ()
    dangerous: tuple[Dangerous, ...] = Field(default=())

    def asks(self, cell: Cell) -> ConversationRule:
        """Return the rule for a cell; raises `UserError` for a cell without one."""
        rule = self._asking(cell)
        if rule is None:
            raise UserError(f"{SHIPPED.name}: no [[asked]] entry matches {cell.name}")
        return rule

    def _asking(self, cell: Cell) -> ConversationRule | None:
        return next(
            (
                rule
                for rule in self.asked
                if (rule.turns, rule.format) == (cell.turns, cell.format)
                and cell.tools in rule.tools
            ),
            None,
        )

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells to walk; a cell with a stop follows the same cell without it."""
        plain = {name: values[0] for name, values in self.dimensions.items()}
        required_cells = [Cell(**{**plain, **combination.cell}) for combination in self.dangerous]
        required_cells += self._pairs()
        ordered: dict[Cell, None] = {}
        for cell in required_cells:
            ordered[cell.unstopped] = None
        ordered |= dict.fromkeys(required_cells)
        return tuple(ordered)

    def _pairs(self) -> Iterator[Cell]:
        """Yield cells that together contain every pair of values that a sensible cell can have.

        Greedy: always the first of the cells that add most pairs. Existing pairwise generators lose
        pairs when combinations are left out.
        """
        products = itertools.product(*self.dimensions.values())
        cells = [Cell(**dict(zip(self.dimensions, values, strict=True))) for values in products]
        pairs = {cell: _pairs_of(cell) for cell in cells if self._sensible(cell)}
        missing = set().union(*pairs.values())
        while missing:
            best = max(pairs, key=lambda cell: len(pairs[cell] & missing))
            missing -= pairs[best]
            yield best

    def _sensible(self, cell: Cell) -> bool:
        left_out = any(
            all(cell.traits[name] in values for name, values in combination.when.items())
            for combination in self.senseless
        )
        return self._asking(cell) is not None and not left_out


def cell_of(conversation: Conversation) -> Cell:
    """Return a cell for a conversation outside the matrix."""
    tools = "auto" if conversation.tools else UNDECLARED
    return Cell(conversation.thinking, tools, "text", UNSET, conversation.name)


def asked_of(cell: Cell) -> ConversationRule:
    """Return the rule for such a cell."""
    return ConversationRule(
        turns=cell.turns, tools=(cell.tools,), format=cell.format, conversation=cell.turns
    )


def _pairs_of(cell: Cell) -> set[tuple[tuple[str, str], ...]]:
    return set(itertools.combinations(cell.traits.items(), 2))


def _without_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "reasoning"}


def load() -> Matrix:
    """Read the shipped matrix."""
    return toml.load(SHIPPED, Matrix)
