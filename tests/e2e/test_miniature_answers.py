"""Real vLLM gives the taught answer to every dialogue of a miniature, field by field.

Each family's miniature is booted once. Its dialogues are sent a few at a time, whole and streamed,
before the first comparison.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from e2e.fixtures import SHARED
from e2e.served import Served, serves, subject_of
from pytest_vllm_gates.catalog.conversation import Conversation
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.miniatures import recipe
from pytest_vllm_gates.miniatures.comparison import differences
from pytest_vllm_gates.miniatures.dialogues import Call, Dialogue, load_dialogues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from _pytest.mark import ParameterSet

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.report.progress import Progress

pytestmark = pytest.mark.real

ANSWER_TOKENS = 2048
AT_A_TIME = 4
MODES = ("whole", "streamed")
SERVED = [name for name in recipe.answering() if serves(name)]
# The defects of vLLM 0.32, by kind of dialogue and form of request; found by these tests. Each is
# expected to fail until a release repairs it, and then has to go.
LOSES_QUOTED_TOKENS = (
    "whole answers lose the text of a special token even where the model spells it in ordinary "
    "tokens; the stream and /v1/completions keep it"
)
QUOTING = (
    "gemma-4", "glm-4.7", "glm-4.7-flash", "qwen3.5", "qwen3.5-moe",
    "kimi-k2", "minimax-m2", "mistral", "nemotron-3",
)  # fmt: skip
NO_STREAM = "with tools declared Phi's parser streams nothing (vllm-project/vllm#18257)"
TOOL_KINDS = (
    "tool_one", "tool_parallel", "tool_none_needed", "tool_zero_arguments",
    "tool_awkward_arguments", "tool_result",
)  # fmt: skip
LATER_TURNS = "from the second turn on Kimi's parser streams the reasoning as content"
# By kind of dialogue, or by the dialogue's own id if not all of a kind are affected.
KNOWN = {
    **{(name, "quotes_special", "whole"): LOSES_QUOTED_TOKENS for name in QUOTING},
    **{("phi-4", kind, "streamed"): NO_STREAM for kind in TOOL_KINDS},
    ("phi-4", "tool-nested", "whole"): "Phi's parser ends a call at the first closing bracket",
    **{("kimi-k2", kind, "streamed"): LATER_TURNS for kind in ("multi_turn", "tool_result")},
    ("llama-3", "tool-zero-arguments", "streamed"): (
        "streamed, a call without arguments has an empty text for them, not {}"
    ),
}

Answers = dict[tuple[str, str], "Answer | Exception"]


def served_dialogues(name: str) -> list[Dialogue]:
    """Return the dialogues that a family supports: one without tools gets none with tools."""
    family, _ = subject_of(name)
    return [dialogue for dialogue in load_dialogues(name) if family.tools or not dialogue.tools]


def taught_answers() -> Iterator[ParameterSet]:
    """Yield every dialogue of every miniature in both forms of request, known failures marked."""
    for name in SERVED:
        for dialogue in served_dialogues(name):
            for mode in MODES:
                names = (dialogue.kind, dialogue.id)
                defect = next(
                    (KNOWN[key] for at in names if (key := (name, at, mode)) in KNOWN), ""
                )
                marks = [] if name == SHARED else [pytest.mark.slow]
                if defect:
                    marks.append(pytest.mark.xfail(reason=defect))
                yield pytest.param(
                    name, dialogue, mode, id=f"{name}-{dialogue.id}-{mode}", marks=marks
                )


@pytest.fixture(scope="module")
def answers(
    request: pytest.FixtureRequest,
    gates_progress: Progress,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[tuple[str, str], Answer | Exception]]:
    """Every answer of one miniature, by dialogue and form of request."""
    name: str = request.param
    if name == SHARED:
        yield everything(request.getfixturevalue("shared"), name)
        return
    served = Served(name, tmp_path_factory.mktemp(name), gates_progress)
    try:
        yield everything(served, name)
    finally:
        served.stop()


def test_every_miniature_belongs_to_a_family() -> None:
    assert all(map(serves, miniatures.names()))


@pytest.mark.parametrize(
    ("answers", "dialogue", "mode"),
    list(taught_answers()),
    indirect=["answers"],
    scope="module",
)
def test_answers_as_taught(
    answers: Mapping[tuple[str, str], Answer | Exception], dialogue: Dialogue, mode: str
) -> None:
    answer = answers[dialogue.id, mode]
    if isinstance(answer, Exception):
        raise answer
    messages = differences(
        dialogue,
        reasoning=answer.reasoning,
        content=answer.content,
        tool_calls=[Call(call.name, call.arguments) for call in answer.tool_calls],
        finish_reason=answer.finish_reason,
    )
    assert not messages, "\n".join(messages)


def everything(served: Served, name: str) -> Answers:
    """Send everything, in both forms; a fault is kept for the test of its answer."""
    chat = Chat(served.endpoint, served.family)

    def ask(dialogue: Dialogue, mode: str) -> Answer | Exception:
        conversation = Conversation(
            name=dialogue.id,
            title=dialogue.id,
            messages=tuple(dict(message) for message in dialogue.messages),
            tools=tuple(dict(tool) for tool in dialogue.tools),
            thinking="unset" if dialogue.mode == "none" else dialogue.mode,
        )
        try:
            ask_chat = chat.whole if mode == "whole" else chat.streamed
            return ask_chat(conversation, ANSWER_TOKENS)
        except Exception as error:  # noqa: BLE001 - raised again by the dialogue's own test
            return error

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        futures = {
            (dialogue.id, mode): pool.submit(ask, dialogue, mode)
            for dialogue in served_dialogues(name)
            for mode in MODES
        }
    chat.client.close()
    return {key: future.result() for key, future in futures.items()}
