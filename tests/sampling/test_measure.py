"""A sampler that does as documented passes, and one that ignores a parameter fails by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import numpy as np
import pytest
from simulated_sampler import SimulatedServer

from pytest_vllm_gates.sampling import checks, probes
from pytest_vllm_gates.sampling.checks_odds import AuditOdds
from pytest_vllm_gates.sampling.client import RefusedRequest
from pytest_vllm_gates.sampling.measure import OFFSETS, Judged, Sampler
from pytest_vllm_gates.sampling.position import SOME, Position
from pytest_vllm_gates.sampling.types import Law, Parameters, Sample, SamplingProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LAW = Law.of({token: -0.15 * token for token in range(64)} | dict.fromkeys(range(64, 100), -9.0))
ODDS = AuditOdds(1e-6 / 32, 1e-3)
EXACT = Position((0,), LAW, whole=True, exact=True, tells=True)
CARRIED = replace(EXACT, exact=False)

Server = "SimulatedServer"


def sampler(
    position: Position = EXACT, change: Callable[[Parameters], Parameters] | None = None
) -> Sampler:
    server = SimulatedServer(LAW, np.random.default_rng(3))
    if change:
        server.change = change
    return Sampler(server, position, ODDS, 8192)  # type: ignore[arg-type]


def judged(judge: Sampler) -> Iterator[Judged]:
    yield judge.judge(probes.untouched())
    yield from (judge.judge(probe) for probe in probes.shaping(judge.position.law))
    tokens = judge.window()
    yield from (judge.judge_steps(probe, tokens) for probe in probes.counting(tokens))
    yield judge.judge_steps(probes.repeating(tokens), tokens, repeated=tokens[::2], offsets=OFFSETS)


def test_a_documented_sampler_passes_every_probe() -> None:
    results = list(judged(sampler()))
    assert [result.probe.name for result in results if not result.test.passes] == []


@pytest.mark.parametrize(
    "name",
    [
        "top_p", "top_k", "min_p", "logit_bias", "allowed_token_ids", "presence_penalty",
        "frequency_penalty", "repetition_penalty",
    ],
)  # fmt: skip
def test_a_parameter_that_is_ignored_fails_by_its_name(name: str) -> None:
    default = getattr(Parameters(), name)
    results = judged(sampler(change=lambda asked: replace(asked, **{name: default})))
    (failed,) = (result for result in results if result.test.fails)
    says = checks.sentence(failed.test, name, failed.probe.asked)
    assert failed.probe.name == name
    assert says is not None
    assert f"{name} is ignored" in says


def test_without_its_frame_a_penalty_is_undecided() -> None:
    judge = sampler(change=lambda asked: replace(asked, logit_bias={}))
    tokens = probes.windows(LAW)[0]
    result = judge.judge_steps(probes.repeating(tokens), tokens, offsets=OFFSETS)
    assert not result.test.fails
    assert result.undecided is not None
    assert result.undecided.endswith("is drawn, which logit_bias leaves out")


def test_another_temperature_is_named() -> None:
    result = sampler(change=lambda asked: replace(asked, temperature=0.9)).judge(probes.untouched())
    assert result.test.fails
    assert result.test.likeliest == "temperature is 0.9"


def test_draws_that_bring_their_own_law_are_judged_among_some_tokens() -> None:
    judge = sampler(CARRIED)
    (probe,) = (probe for probe in probes.shaping(LAW) if probe.name == "logit_bias")
    result = judge.judge(probe)
    assert result.test.passes
    assert len(result.request["logprob_token_ids"]) == len(judge.position.window) <= SOME


def test_a_law_that_moves_is_not_that_of_the_draws() -> None:
    judge = sampler()
    moved = Law.of({token: 0.98 * float(log) for token, log in enumerate(LAW.logprobs)})
    judge.position = replace(EXACT, law=moved)
    (probe,) = (probe for probe in probes.shaping(LAW) if probe.name == "allowed_token_ids")
    assert judge.judge(probe).test.passes
    assert not judge.position.exact


def test_with_the_likeliest_tokens_alone_a_cut_is_judged_by_all_probability() -> None:
    known = {int(token): float(log) for token, log in zip(LAW.ids, LAW.logprobs, strict=True)}
    law = Law.of({token: known[token] for token in range(20)}, among_others=True)
    judge = sampler(Position((0,), law, whole=False, exact=False, tells=False, mass=law.mass))
    judge.client.tops = 20  # type: ignore[attr-defined]
    (probe,) = (probe for probe in probes.shaping(law) if probe.name == "top_p")
    assert probe.asked.top_p < law.mass
    assert judge.judge(probe).test.passes


def test_an_effect_outside_the_likeliest_tokens_is_undecided_and_costs_little() -> None:
    known = {int(token): float(log) for token, log in zip(LAW.ids, LAW.logprobs, strict=True)}
    law = Law.of({token: known[token] for token in range(20)}, among_others=True)
    judge = sampler(Position((0,), law, whole=False, exact=False, tells=False, mass=law.mass))
    judge.client.tops = 20  # type: ignore[attr-defined]
    probe = SamplingProbe("temperature", Parameters(), {"top_k is 50": Parameters(top_k=50)})
    result = judge.judge(probe)
    assert result.undecided is not None
    assert result.test.draws == 0


class Answering(SimulatedServer):
    """Answers with an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(LAW, np.random.default_rng(3))
        self._error = error

    def complete(self, *_: object) -> list[Sample]:
        raise self._error from None


def test_a_parameter_may_be_refused() -> None:
    judge = Sampler(Answering(RefusedRequest("400: no")), EXACT, ODDS, 100)  # type: ignore[arg-type]
    result = judge.judge(probes.untouched())
    assert (result.refused, result.undecided) == ("400: no", None)
    assert not result.test.fails


def test_an_answer_that_does_not_come_is_the_parameters() -> None:
    server = Answering(httpx.ReadError("gone"))
    judge = Sampler(server, EXACT, ODDS, 100)  # type: ignore[arg-type]
    tokens = probes.windows(LAW)[0]
    assert judge.judge_steps(probes.counting(tokens)[0], tokens).broken == "ReadError: gone"


class Single(SimulatedServer):
    """Returns one answer to any request."""

    def complete(self, prompt: Sequence[int], body: Mapping[str, Any]) -> list[Sample]:
        return super().complete(prompt, body)[:1]


def test_fewer_answers_than_requested_end_a_probe() -> None:
    server = Single(LAW, np.random.default_rng(3))
    judge = Sampler(server, EXACT, ODDS, 100)  # type: ignore[arg-type]
    tokens = probes.windows(LAW)[0]
    assert judge.judge(probes.untouched()).broken == "n 128: 1 answers came"
    assert judge.judge_steps(probes.counting(tokens)[0], tokens).broken == "n 16: 1 answers came"


def test_a_probe_without_enough_draws_is_reported() -> None:
    judge = sampler()
    few = Sampler(judge.client, EXACT, ODDS, 1)
    says = few.judge(probes.untouched()).undecided
    assert says is not None
    assert says.startswith("temperature: 128 tokens do not exclude that temperature is 0.9")
