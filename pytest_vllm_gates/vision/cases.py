"""The requests of the vision gate: pictures, questions about them, and expected answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.vision import questions
from pytest_vllm_gates.vision.types import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

SHIFTED = (
    "You look at pictures for a paint shop. Be brief, be exact, and answer in English. "
    "Customers send one picture or several, and every answer is read by a machine."
)
"""The text before a picture that is sent again."""


@dataclass(frozen=True)
class Turn:
    """Pictures and a question, with the answer if the turn is in the past."""

    scenes: tuple[Scene, ...]
    text: str
    answer: str | None = None


@dataclass(frozen=True)
class VisionCase:
    """One request about pictures."""

    name: str
    kind: str
    """The kind of question; its options are the words an answer may contain."""
    turns: tuple[Turn, ...]
    expects: tuple[str, ...]
    """The words of an answer, in order; of a call its argument."""
    system: str = ""
    calls: bool = False
    """Whether the tool is declared, and has to be called."""
    after_a_tool: bool = False
    """Whether the picture comes as the next message after a tool's result."""

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """Every picture, in order."""
        return tuple(scene for turn in self.turns for scene in turn.scenes)

    @property
    def needs_tools(self) -> bool:
        """Whether tools are declared."""
        return self.calls or self.after_a_tool

    @property
    def answer(self) -> str:
        """The answer's text, as a miniature is taught it."""
        return ", ".join(self.expects)

    def messages(self, url: Callable[[Scene], str]) -> list[dict[str, Any]]:
        """Return the messages; `url` writes a scene's picture."""
        messages: list[dict[str, Any]] = []
        if self.system:
            messages.append({"role": "system", "content": self.system})
        if self.after_a_tool:
            messages += _tool_history()
        for turn in self.turns:
            messages.append(questions.user([url(scene) for scene in turn.scenes], turn.text))
            if turn.answer is not None:
                messages.append({"role": "assistant", "content": turn.answer})
        return messages

    def body(self, url: Callable[[Scene], str]) -> dict[str, Any]:
        """Return the request, without model and sampling."""
        body: dict[str, Any] = {"messages": self.messages(url)}
        if self.needs_tools:
            body["tools"] = [questions.tool()]
        return body


def one(scene: Scene, kind: str | None = None) -> VisionCase:
    """Return the question that fits a scene."""
    kind = kind or scene.kind
    turn = Turn((scene,), questions.question(kind))
    return VisionCase(scene.name, kind, (turn,), scene.words)


def several(*scenes: Scene) -> VisionCase:
    """Return the question for the order of squares in several pictures."""
    words = tuple(word for scene in scenes for word in scene.words)
    turn = Turn(scenes, questions.question("order"))
    return VisionCase(f"{'-'.join(words)} in {len(scenes)} pictures", "order", (turn,), words)


def in_turns(first: Scene, second: Scene) -> VisionCase:
    """Return two turns with a picture each; the question is about the second."""
    turns = (
        Turn((first,), questions.question("colour"), first.words[0]),
        Turn((second,), questions.question("second")),
    )
    return VisionCase(f"{first.words[0]}, then {second.words[0]}", "colour", turns, second.words)


def looking_back(first: Scene, second: Scene) -> VisionCase:
    """Return three turns, two with a picture; the last question is about the first picture."""
    turns = (
        Turn((first,), questions.question("colour"), first.words[0]),
        Turn((second,), questions.question("second"), second.words[0]),
        Turn((), questions.question("first")),
    )
    return VisionCase(f"back to {first.words[0]}", "colour", turns, first.words)


def call(scene: Scene) -> VisionCase:
    """Return a request whose answer is a call with the picture's content as its argument."""
    turn = Turn((scene,), questions.question("call"))
    name = f"call for {scene.words[0]}"
    return VisionCase(name, "colour", (turn,), scene.words, calls=True)


def after_a_tool(scene: Scene) -> VisionCase:
    """Return a question for a picture that comes after a tool's result."""
    case = one(scene)
    return replace(case, name=f"{case.name} after a tool", after_a_tool=True)


def without_picture(case: VisionCase) -> VisionCase:
    """Return the same question with no picture."""
    turns = tuple(replace(turn, scenes=()) for turn in case.turns)
    return replace(case, name=f"{case.kind} without a picture", turns=turns, expects=())


def shifted(case: VisionCase) -> VisionCase:
    """Return the same question after a text that shifts its pictures."""
    return replace(case, name=f"{case.name}, shifted", system=SHIFTED)


def _tool_history() -> list[dict[str, Any]]:
    """Return messages of a call and its result."""
    name = questions.load().tool.name
    function = {"name": name, "arguments": '{"colour": "blue"}'}
    calls = [{"id": "call_paint", "type": "function", "function": function}]
    return [
        {"role": "user", "content": "Order blue paint."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_paint", "content": "Ordered."},
    ]


SEEN = (
    one(Scene("colour", ("red",))),
    one(Scene("colour", ("green",), 128, 96)),
    one(Scene("colour", ("blue",), 64, 64)),
    one(Scene("colour", ("yellow",), 96, 160)),
    one(Scene("place", ("red",), place="left")),
    one(Scene("place", ("blue",), place="right")),
    one(Scene("place", ("black",), place="top")),
    one(Scene("place", ("green",), place="bottom")),
    one(Scene("stripes", ("red", "blue", "green"))),
    one(Scene("stripes", ("blue", "red", "green"))),
)
"""One picture each; pairs of them differ only in the picture."""
ORDERS = (
    several(Scene("colour", ("red",)), Scene("colour", ("blue",))),
    several(Scene("colour", ("blue",)), Scene("colour", ("red",))),
    several(
        Scene("colour", ("green",), 64, 64), Scene("colour", ("yellow",), 128, 96),
        Scene("colour", ("red",)),
    ),
    in_turns(Scene("colour", ("red",)), Scene("colour", ("green",))),
    in_turns(Scene("colour", ("green",)), Scene("colour", ("red",))),
    looking_back(Scene("colour", ("blue",)), Scene("colour", ("yellow",))),
    after_a_tool(Scene("colour", ("purple",))),
)  # fmt: skip
"""Several pictures, in one message and in several turns."""
DETAILS = (
    one(Scene("digit", ("blue",), number=3, share=0.8)),
    one(Scene("digit", ("blue",), number=8, share=0.8)),
    one(Scene("digit", ("black",), number=1, share=0.75)),
    one(Scene("digit", ("black",), number=7, share=0.75)),
    one(Scene("count", ("red",), number=1)),
    one(Scene("count", ("red",), number=2)),
    one(Scene("count", ("green",), number=3)),
    one(Scene("count", ("green",), number=4)),
    one(Scene("which", ("red", "blue"), share=0.8)),
    one(Scene("which", ("blue", "red"), share=0.8)),
)
"""Digits, how many squares there are, which of two is red; pairs differ only in the picture."""
CALLS = (call(Scene("colour", ("red",))), call(Scene("colour", ("green",), 128, 96)))
NONCES = tuple(
    one(Scene("stripes", (first, second, third)))
    for first, second, third in (
        ("red", "green", "blue"), ("green", "red", "blue"), ("blue", "green", "red"),
        ("yellow", "black", "red"), ("black", "yellow", "red"), ("red", "yellow", "black"),
        ("purple", "green", "yellow"), ("green", "purple", "yellow"), ("blue", "black", "purple"),
        ("black", "blue", "purple"), ("purple", "blue", "black"), ("yellow", "red", "green"),
        ("red", "purple", "green"), ("green", "black", "yellow"), ("blue", "yellow", "green"),
        ("black", "red", "yellow"),
    )
)  # fmt: skip
"""Sixteen pictures of one size, with one question: only the pictures differ."""
