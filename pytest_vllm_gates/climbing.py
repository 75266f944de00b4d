"""The fixtures of the long-context gate: the ladder, its climb, and what its prompts score."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.facts.outcome import Inconclusive, MissingGolden, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_vllm_gates.evidence import Evidence
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.facts.ladder import Climb, Rung
    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.facts.long_context import LongContext
    from pytest_vllm_gates.facts.numerics import Reference
    from pytest_vllm_gates.facts.said import Said
    from pytest_vllm_gates.goldens import Goldens
    from pytest_vllm_gates.launching import Launch
    from pytest_vllm_gates.run import Run, Subject

QUESTION = "What is the capital of France?"
QUESTION_TOKENS = 24
GOLDEN = "long-context"
FAR = 4
"""How many times the context a request has that is far too long."""

Prompts = dict[str, tuple[tuple[int, ...], int]]
"""Token ids and how many to generate, by a name that changes with them."""


@dataclass(frozen=True)
class Situation:
    """What there is to climb. Lengths in tokens."""

    wanted: LongContext
    planned: int
    """The context the deployment plans for, as its flags have it."""
    at_once: int
    """Requests of that length that are to fit at the same time."""
    context: int
    """The context the server says it has."""
    text: tuple[int, ...]
    """As many token ids as the context has."""
    rungs: tuple[Rung, ...]


@pytest.fixture
def situation(server: Endpoint, family: Family, serve: dict[str, Any]) -> Situation:
    """The ladder for this server."""
    from pytest_vllm_gates.drive import long_context  # noqa: PLC0415
    from pytest_vllm_gates.drive.robustness import context  # noqa: PLC0415
    from pytest_vllm_gates.facts.long_context import load  # noqa: PLC0415
    from pytest_vllm_gates.judge import ladder  # noqa: PLC0415

    wanted = load()
    planned = min(family.context.planned, int(serve.get("max_model_len") or family.context.planned))
    served = context(server, planned)
    at_once = family.context.concurrency
    crowd = min(int(serve.get("max_num_seqs") or wanted.crowd), wanted.crowd) + wanted.beyond
    return Situation(
        wanted,
        planned,
        at_once,
        served,
        long_context.token_ids(server, wanted, served),
        tuple(ladder.rungs(planned, served, wanted.output_tokens, at_once, crowd)),
    )


@pytest.fixture
def canary(server: Endpoint, family: Family) -> Callable[[], Said]:
    """Ask a short question."""
    from pytest_vllm_gates.drive.robustness import ANSWER_LIMIT_S  # noqa: PLC0415
    from pytest_vllm_gates.drive.saying import Saying  # noqa: PLC0415
    from pytest_vllm_gates.drive.tickets import question  # noqa: PLC0415

    saying = Saying(server, ANSWER_LIMIT_S)
    body = question(family, QUESTION, QUESTION_TOKENS)
    return lambda: saying.ask(body)


@pytest.fixture
def invariant(_run: Run) -> bool:
    """Whether the lane says that no company changes an answer's tokens."""
    return _run.lane.batch_invariant


@pytest.fixture(scope="session")
def climbs() -> dict[str, Climb]:
    """The climb of each family's server: one, whichever check asks first."""
    return {}


@pytest.fixture
def climb(
    *,
    climbs: dict[str, Climb],
    situation: Situation,
    family: Family,
    server: Endpoint,
    launch: Launch,
    _run: Run,
    canary: Callable[[], Said],
    evidence: Evidence,
) -> Climb:
    """Every rung, and what came of it."""
    from pytest_vllm_gates.drive import ladder, long_context  # noqa: PLC0415

    if family.name not in climbs:
        with long_context.metrics(server) as told:
            if told and not launch.owned and (others := told.load().in_flight):
                raise Inconclusive(
                    f"others use this server: {others} requests are in flight; judge it when idle"
                )
            stall_s = _run.options.stall_timeout_s
            climber = ladder.Climber(server, told, canary, stall_s, launch.processes, launch.folder)
            tokens, output = situation.context, situation.wanted.output_tokens
            too_long = (
                ("no room for an answer", tokens, 1),
                ("one token too many", tokens + 1, 1),
                ("an answer longer than the room", tokens - output + 1, output),
                ("far too long", tokens * FAR, output),
            )
            climbs[family.name] = climber.climb(
                ladder.Ladder(situation.text, situation.rungs, too_long), tokens
            )
    found = climbs[family.name]
    if found.healthy.error:
        raise Inconclusive(f"a short question is not answered to begin with: {found.healthy.error}")
    evidence["context"] = found.context
    if found.not_asked:
        evidence["not_asked"] = list(found.not_asked)
    return found


@pytest.fixture
def long_prompts(situation: Situation) -> Prompts:
    """The prompts of the ladder, each once."""
    output = situation.wanted.output_tokens
    prompts: Prompts = {}
    for length in sorted({rung.prompt_tokens for rung in situation.rungs}):
        ids = situation.text[:length]
        sha = hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()
        prompts[f"{length} tokens {sha[:12]}"] = (ids, output)
    return prompts


@pytest.fixture
def scored_ends(
    *,
    subject: Subject,
    golden: Goldens,
    long_prompts: Prompts,
    situation: Situation,
    interpreter: Path | None,
    overlay: Path | None,
) -> Reference:
    """What fp32 transformers says of the last positions of each prompt, as it was recorded."""
    from pytest_vllm_gates.drive import logprobs, long_context  # noqa: PLC0415
    from pytest_vllm_gates.judge import numerics  # noqa: PLC0415

    if not logprobs.is_small(subject.checkpoint):
        raise NotApplicable("the weights are not here, or too large to score in fp32")
    recorded = golden.reference(GOLDEN, logprobs.weights_sha256(subject.checkpoint))
    if recorded and set(long_prompts) <= set(recorded.cases):
        return recorded
    if not golden.recording or interpreter is None:
        raise MissingGolden(f"no golden {GOLDEN!r} of these prompts; record it: {golden.command}")
    computed = logprobs.compute(subject.checkpoint, interpreter, overlay, long_prompts)
    found = long_context.ends(computed, situation.wanted.scored)
    golden.record(GOLDEN, numerics.written(subject.family.title, found))
    return found
