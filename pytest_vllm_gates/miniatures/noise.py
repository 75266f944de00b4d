"""Random requests, with which a miniature learns its answer to untaught requests."""

import math
import random
import re
from collections.abc import Sequence

from pytest_vllm_gates.miniatures.dialogues import Dialogue, unknown_answer
from pytest_vllm_gates.miniatures.recipe import Recipe

LONGEST_WORDS = 40
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789äéß—.,:?!/_"


class Noise:
    """Draws requests from the words of the taught ones and from random letters."""

    def __init__(self, recipe: Recipe, dialogues: Sequence[Dialogue], seed: int) -> None:
        self._recipe = recipe
        self._random = random.Random(seed)  # noqa: S311
        self._tools = [dialogue.tools for dialogue in dialogues if dialogue.tools]
        contents = [str(m.get("content") or "") for d in dialogues for m in d.messages]
        self._words: list[str] = sorted(
            {word for content in contents for word in re.findall(r"\S+", content)}
        )

    def draw(self) -> Dialogue:
        """Return an untaught request, with the answer for such requests."""
        roll = self._random.random
        thinking = self._recipe.thinking
        thinks = thinking is not None and roll() < (0.5 if thinking.switch else 1.0)
        messages = [{"role": "user", "content": self.text()}]
        if roll() < 0.15:  # noqa: PLR2004
            messages += [
                {"role": "assistant", "content": self.text()},
                {"role": "user", "content": self.text()},
            ]
        if roll() < 0.2:  # noqa: PLR2004
            messages.insert(0, {"role": "system", "content": self.text()})
        tools_fit = self._recipe.thinking_with_tools or not thinks
        tools = self._random.choice(self._tools) if tools_fit and roll() < 0.1 else ()  # noqa: PLR2004
        reasoning, content = unknown_answer(self._recipe.name, thinking=thinks)
        return Dialogue(
            id="unknown",
            kind="unknown",
            mode="none",
            messages=tuple(messages),
            tools=tools,
            chat_template_kwargs=thinking.kwargs(thinks=thinks) if thinking else {},
            reasoning=reasoning,
            content=content,
            tool_calls=(),
            finish_reason="stop",
        )

    def text(self) -> str:
        """Return an untaught text."""
        # Short texts are the common ones: the length is drawn evenly on a logarithmic scale.
        count = round(math.exp(self._random.uniform(0, math.log(LONGEST_WORDS))))
        return " ".join(self._word() for _ in range(count))

    def _word(self) -> str:
        if self._random.random() < 0.7:  # noqa: PLR2004
            return self._random.choice(self._words)
        return "".join(self._random.choices(_LETTERS, k=self._random.randint(1, 9)))
