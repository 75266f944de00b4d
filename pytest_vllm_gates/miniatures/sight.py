"""The lessons of a miniature that sees: the vision gate's cases, and random pictures."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.miniatures.dialogues import Call, Dialogue
from pytest_vllm_gates.vision import cases, questions
from pytest_vllm_gates.vision.types import COLOURS, PLACES, WHICH, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pytest_vllm_gates.vision.cases import VisionCase
    from pytest_vllm_gates.vision.types import Kind

SIDES = (64, 96, 96, 96, 128, 160)
LARGE_SIDES = (192, 256)
NUMBERS: Mapping[str, Sequence[int]] = {"digit": range(10), "count": range(1, 5)}
KINDS: Mapping[Kind, int] = {
    "colour": 2, "place": 6, "stripes": 4, "plain": 1, "digit": 8, "count": 10, "which": 3,
}  # fmt: skip
"""Shares of the kinds of questions about one picture; harder kinds have larger shares."""
INKS: Mapping[Kind, tuple[str, ...]] = {"digit": ("blue", "black"), "count": ("red", "green")}
"""The colours of drawings, by kind; all for the others. With six some were never learnt."""
SHARES: Mapping[Kind, tuple[float, float]] = {
    "colour": (0.35, 0.8), "digit": (0.75, 0.8), "count": (0.5, 0.5), "which": (0.6, 0.9),
}  # fmt: skip
"""The least and the largest share of a picture, by kind; for the others 0.4 and 0.55."""
SIDE = 96
"""Pixels of a side of pictures with places, stripes, numbers or two squares: a stripe is a token
wide."""
RIBBON = (480, 32)
SHIFTED_SHARE, UNSEEN_SHARE, LARGE_SHARE, RIBBON_SHARE = 0.25, 0.06, 0.04, 0.04
RESIZED = (
    cases.one(Scene("colour", ("red",), 128, 128)),
    cases.one(Scene("colour", ("yellow",), 96, 64)),
    cases.one(Scene("colour", ("blue",), 256, 256)),
    cases.one(Scene("plain", ("red",), 64, 64)),
    cases.one(Scene("place", ("blue",), place="top")),
    cases.one(Scene("place", ("black",), place="left", background=255)),
    cases.one(Scene("stripes", ("red", "green", "blue"), *RIBBON)),
)
"""The scenes that the gate sends in other kinds of files, as the processor resizes them."""


def taught(*, tools: bool = True, untaught: Collection[str] = ()) -> tuple[VisionCase, ...]:
    """Return the cases that must be known: the gate's, shifted and without pictures.

    Without `tools` those that need them are left out, and so are `untaught` kinds of questions.
    """
    details = [case for case in cases.DETAILS if case.kind not in untaught]
    shown = (*cases.SEEN, *details)
    every = (*shown, *cases.ORDERS, *cases.CALLS, *cases.NONCES, *RESIZED)
    seen = [case for case in every if tools or not case.needs_tools]
    unseen = {case.kind: cases.without_picture(case) for case in shown}
    return (*seen, *map(cases.shifted, cases.SEEN), *unseen.values())


def dialogue(case: VisionCase) -> Dialogue:
    """Return a case as a dialogue; its pictures are the case's scenes, in order."""
    body = case.body(lambda _: "")
    content = case.answer or questions.load().miniature.none
    calls: tuple[Call, ...] = ()
    if case.calls and case.expects:
        arguments = f'{{"colour": "{case.expects[0]}"}}'
        calls = (Call(questions.load().tool.name, arguments),)
    return Dialogue(
        id=f"sees {case.name}",
        kind="sees",
        mode="none",
        messages=tuple(body["messages"]),
        tools=tuple(body.get("tools", ())),
        chat_template_kwargs={},
        reasoning=None,
        content=None if calls else content,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
    )


class Pictures:
    """Draws random cases."""

    def __init__(
        self,
        seed: int,
        text: Callable[[], str],
        *,
        tools: bool = True,
        untaught: Collection[str] = (),
    ) -> None:
        """`text` draws a text that may come before the pictures.

        `tools` allows calls; `untaught` are kinds of questions that are not drawn.
        """
        self._random = random.Random(seed)  # noqa: S311
        self._text = text
        self._tools = tools
        self._shares = {kind: KINDS[kind] for kind in KINDS if kind not in untaught}

    def draw(self) -> VisionCase:
        """Return a case that was never seen."""
        roll = self._random.random
        makers = (self._one, self._several, self._in_turns, self._call)
        case = self._random.choices(makers, (12, 4, 3, 2 if self._tools else 0))[0]()
        if roll() < UNSEEN_SHARE:
            return cases.without_picture(case)
        if roll() < SHIFTED_SHARE and not case.calls:
            case = replace(case, system=cases.SHIFTED if roll() < 0.5 else self._text())  # noqa: PLR2004
        return case

    def _one(self) -> VisionCase:
        kind = self._random.choices([*self._shares], [*self._shares.values()])[0]
        case = cases.one(self._scene(kind))
        follows = self._random.random() < 0.08  # noqa: PLR2004
        return replace(case, after_a_tool=follows and self._tools)

    def _several(self) -> VisionCase:
        return cases.several(*(self._scene("colour") for _ in range(self._random.randint(2, 3))))

    def _in_turns(self) -> VisionCase:
        make = self._random.choice((cases.in_turns, cases.looking_back))
        return make(self._scene("colour"), self._scene("colour"))

    def _call(self) -> VisionCase:
        return cases.call(self._scene("colour"))

    def _scene(self, kind: Kind) -> Scene:
        width, height = self._size(kind)
        least, most = SHARES.get(kind, (0.4, 0.55))
        # Drawn on every background, digits and counts were never all learnt at once.
        background = Scene(kind).background if kind in NUMBERS else self._random.randint(215, 255)
        return Scene(
            kind,
            self._colours(kind),
            width,
            height,
            place=self._random.choice(PLACES) if kind == "place" else "middle",
            number=self._random.choice(NUMBERS[kind]) if kind in NUMBERS else 0,
            share=self._random.uniform(least, most),
            background=background,
        )

    def _colours(self, kind: Kind) -> tuple[str, ...]:
        if kind == "which":
            two = [WHICH, self._random.choice([colour for colour in COLOURS if colour != WHICH])]
            self._random.shuffle(two)
            return tuple(two)
        if kind in INKS:
            return (self._random.choice(INKS[kind]),)
        # Stripes of one colour side by side would be one.
        return tuple(self._random.sample([*COLOURS], 3 if kind == "stripes" else 1))

    def _size(self, kind: Kind) -> tuple[int, int]:
        if kind == "stripes":
            return RIBBON if self._random.random() < RIBBON_SHARE else (SIDE, SIDE)
        if kind in {"place", "which", *NUMBERS}:
            return SIDE, SIDE
        sides = LARGE_SIDES if self._random.random() < LARGE_SHARE else SIDES
        return self._random.choice(sides), self._random.choice(sides)
