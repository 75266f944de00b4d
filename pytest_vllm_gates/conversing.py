"""The fixtures of the conversation gates: what was asked once, for all their checks to judge."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.facts.outcome import Blocked, NotApplicable
from pytest_vllm_gates.facts.tape import WALK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_vllm_gates.checking import Checking
    from pytest_vllm_gates.drive.chat import Chat
    from pytest_vllm_gates.drive.cutting import Limited, Pieces
    from pytest_vllm_gates.drive.forced import Forced
    from pytest_vllm_gates.drive.pace import Paced
    from pytest_vllm_gates.drive.replay import ReplayedWalk
    from pytest_vllm_gates.drive.sampled import Sampled
    from pytest_vllm_gates.drive.walk import Walk
    from pytest_vllm_gates.facts.answer import Answer
    from pytest_vllm_gates.facts.conversation import Conversation
    from pytest_vllm_gates.facts.exchange import Exchange
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.facts.finding import Case
    from pytest_vllm_gates.facts.lane import Lane
    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.facts.stream import Timed
    from pytest_vllm_gates.replays import Attempt
    from pytest_vllm_gates.run import Run

CALLS_A_TOOL = "tool-one"
LONG = "long"
LONG_TOKENS = 600


@dataclass(frozen=True)
class Walked:
    """The matrix as it was asked of one family."""

    exchanges: tuple[Exchange, ...]
    not_applicable: Mapping[str, str]
    requests: int
    seconds: float
    max_tokens: int

    @property
    def answered(self) -> tuple[Exchange, ...]:
        """The cells that were answered at all; another check judges the others."""
        return tuple(one for one in self.exchanges if not one.error)

    @property
    def cases(self) -> list[Case]:
        """The answered cells as cases."""
        return [one.case for one in self.answered]

    @property
    def plain_thought(self) -> Answer | None:
        """The answer to a plain question with thinking on."""
        return next(
            (
                one.whole
                for one in self.answered
                if one.thinks and one.cell.tools == "undeclared" and one.cell.format == "text"
            ),
            None,
        )


@pytest.fixture(scope="session")
def walks() -> dict[str, Walked]:
    """The walks of this run by family: one each, whichever gate asks first."""
    return {}


@pytest.fixture
def asked(
    walks: dict[str, Walked],
    server: Endpoint,
    family: Family,
    _incident: Attempt | None,
    _run: Run,
) -> Walked:
    """Everything the matrix asks, and what came back, if anything did.

    For an incident that is replayed it is what its bundle asks.
    """
    from pytest_vllm_gates.drive.replay import ReplayedWalk  # noqa: PLC0415
    from pytest_vllm_gates.drive.walk import Walk  # noqa: PLC0415
    from pytest_vllm_gates.facts import matrix  # noqa: PLC0415

    if _incident and (kept := _incident.bundle.incident.walk):
        replayed = ReplayedWalk(server, family, _incident.bundle, kept)
        return _walked(replayed, kept.max_tokens)
    if family.name not in walks:
        limit = _run.options.answer_tokens
        walk = Walk(server, family, matrix.load(), _run.conversations, limit)
        with server.tape.part(WALK) if server.tape else contextlib.nullcontext():
            walks[family.name] = _walked(walk, limit, walk.not_applicable)
    return walks[family.name]


def _walked(
    walk: Walk | ReplayedWalk, limit: int, not_applicable: Mapping[str, str] | None = None
) -> Walked:
    begun = time.monotonic()
    exchanges = walk.run()
    taken = time.monotonic() - begun
    return Walked(exchanges, not_applicable or {}, walk.requests, taken, limit)


@pytest.fixture
def walked(asked: Walked) -> Walked:
    """What the matrix asks, of which something was answered."""
    if not asked.answered:
        raise Blocked(f"nothing the matrix asks is answered: {asked.exchanges[0].error}")
    return asked


@pytest.fixture
def read_by(serve: dict[str, Any], lane: Lane) -> str:
    """Which parsers were to read what the model writes: what to look at where it was not read."""
    from pytest_vllm_gates.judge import wire  # noqa: PLC0415

    return wire.read_by(None if lane.base_url else serve)


@pytest.fixture
def late(checking: Checking) -> Callable[[Timed], bool]:
    """Tell whether a stream came late in a way that is no known defect: then another is asked."""
    from pytest_vllm_gates.facts.finding import Case, Finding  # noqa: PLC0415
    from pytest_vllm_gates.judge.pace import faults  # noqa: PLC0415

    def unknown(stream: Timed) -> bool:
        case = Case(stream.what)
        found = [Finding(case, one) for one in faults(stream)]
        return bool(found) and not checking.knows(found, [case])

    return unknown


@pytest.fixture
def paced(
    chat: Chat, server: Endpoint, family: Family, _run: Run, late: Callable[[Timed], bool]
) -> Paced:
    """A long answer, streamed: long enough that a busy machine is told from a held stream."""
    from pytest_vllm_gates.drive.pace import measure  # noqa: PLC0415

    body = _body(_run, family, LONG)
    body |= {"max_tokens": min(LONG_TOKENS, _run.options.answer_tokens), "ignore_eos": True}
    return measure(chat, server, body, "a long answer", late)


@pytest.fixture
def paced_call(
    chat: Chat, server: Endpoint, family: Family, late: Callable[[Timed], bool]
) -> Paced:
    """A tool call with a long argument, streamed."""
    from pytest_vllm_gates.drive.forced import long_call  # noqa: PLC0415
    from pytest_vllm_gates.drive.pace import measure  # noqa: PLC0415

    return measure(chat, server, long_call(server, family), "a long argument", late)


@pytest.fixture
def forced(chat: Chat, server: Endpoint, family: Family) -> Forced:
    """The replies the server was made to write."""
    from pytest_vllm_gates.drive.forced import hostile_calls  # noqa: PLC0415

    return hostile_calls(chat, server, family)


@pytest.fixture
def sampled(chat: Chat, family: Family, _run: Run) -> Sampled:
    """One question that wants a tool, asked again and again, sampled."""
    from pytest_vllm_gates.drive.sampled import sample  # noqa: PLC0415
    from pytest_vllm_gates.judge.calls import one_valid_call  # noqa: PLC0415

    times = _run.options.samples
    if not times:
        raise NotApplicable("no samples were asked for (--samples 0)")
    body = _body(_run, family, CALLS_A_TOOL)
    return sample(chat, body, times, lambda answer: one_valid_call(answer, body))


@pytest.fixture
def pieces(chat: Chat, family: Family, _run: Run) -> Pieces:
    """A long answer, to be stopped at any piece of it."""
    from pytest_vllm_gates.drive.cutting import Pieces  # noqa: PLC0415

    return Pieces(chat, _body(_run, family, "two-lines"))


@pytest.fixture
def limited(chat: Chat, family: Family, _run: Run) -> list[Limited]:
    """Answers under limits of tokens."""
    from pytest_vllm_gates.drive.cutting import limits  # noqa: PLC0415

    body = _body(_run, family, "two-lines")
    return limits(chat, body, chat.ask(body))


def _body(run: Run, family: Family, name: str) -> dict[str, Any]:
    """Return the request of a conversation, with the run's limit of tokens."""
    conversation: Conversation = next(one for one in run.conversations if one.name == name)
    if reason := conversation.why_not(family):
        if family.thinking is None or family.thinking.with_tools or not conversation.tools:
            raise NotApplicable(reason)
        conversation = conversation.model_copy(update={"thinking": "off"})
        if reason := conversation.why_not(family):
            raise NotApplicable(reason)
    return {**conversation.body(family), "max_tokens": run.options.answer_tokens}
