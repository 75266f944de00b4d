"""Draws the tokens after a position until a probe is decided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import numpy as np

from pytest_vllm_gates.sampling import probes
from pytest_vllm_gates.sampling.checks import count_fault
from pytest_vllm_gates.sampling.checks_law import NOTHING, Seen, edges, processed
from pytest_vllm_gates.sampling.checks_odds import SequentialTest
from pytest_vllm_gates.sampling.client import RefusedRequest, told
from pytest_vllm_gates.sampling.position import EXACT_NATS, worst_off
from pytest_vllm_gates.sampling.types import Law, Parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.sampling.checks_odds import AuditOdds
    from pytest_vllm_gates.sampling.client import SamplingClient
    from pytest_vllm_gates.sampling.position import Position
    from pytest_vllm_gates.sampling.types import Logs, Sample, SamplingProbe

FIRST, MOST_AT_ONCE = 128, 512
"""Draws of the first request for a probe, and of the largest."""
OFFSETS = np.arange(-20.0, 120.0, 4.0)
"""The range of the constant of a position's logits, in nats: the largest logit of a model."""
ANSWERS, ANSWER_TOKENS = 16, 8


@dataclass
class Judged:
    """A probe and its result."""

    probe: SamplingProbe
    test: SequentialTest
    request: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    """The server's answer if it refuses the parameter."""
    broken: str = ""
    """Why no answer could be judged."""

    stray: int | None = None
    """A token that the probe's framing parameters exclude: these do not work."""

    @property
    def undecided(self) -> str | None:
        """The alternatives that are left, as a sentence; None if the probe is decided."""
        if self.refused or self.broken or self.test.decided:
            return None
        if self.stray is not None:
            bound = "logit_bias" if self.probe.asked.logit_bias else "allowed_token_ids"
            return f"{self.probe.name}: token {self.stray} is drawn, which {bound} leaves out"
        left = ", ".join(self.test.undecided)
        return f"{self.probe.name}: {self.test.draws} tokens do not exclude that {left}"

    def as_evidence(self) -> dict[str, Any]:
        """Return the measurement as JSON."""
        ratios = {name: round(max(self.test.ratio(name), -999.0), 1) for name in self.test.instead}
        return {
            "asked": self.probe.asked.told(self.probe.name),
            "draws": self.test.draws,
            "nats": ratios,
            "refused": self.refused,
        }


class Sampler:
    """Judges probes at one position until each is decided or its draws are spent."""

    def __init__(
        self, client: SamplingClient, position: Position, odds: AuditOdds, most_draws: int
    ) -> None:
        self.client = client
        self.position = position
        self.odds = odds
        self._most = most_draws

    def judge(self, probe: SamplingProbe) -> Judged:
        """Draw single tokens with a probe's parameters until it is decided."""
        judged = Judged(probe, SequentialTest.between([*probe.instead], self.odds))
        n = FIRST
        hidden = self._hidden(probe)
        while not judged.test.decided and judged.test.draws < self._most:
            if hidden and hidden >= set(judged.test.undecided):
                return judged
            judged.request = self._body(probe, n)
            samples = self._samples(judged, self.position.prompt, n)
            if samples is None:
                return judged
            if self.position.exact and worst_off(self.position.law, samples) > EXACT_NATS:
                self.position = replace(self.position, exact=False)
                return self.judge(probe)
            self._count(judged, samples)
            n = min(2 * n, MOST_AT_ONCE)
        return judged

    def _samples(self, judged: Judged, prompt: Sequence[int], count: int) -> list[Sample] | None:
        """Return the answers to a probe's request; None, and why in `judged`, without them."""
        try:
            samples = self.client.complete(prompt, judged.request)
        except RefusedRequest as refusal:
            judged.refused = str(refusal)
            return None
        except httpx.HTTPError as error:
            judged.broken = f"{type(error).__name__}: {error}"
            return None
        judged.broken = count_fault(samples, count) or ""
        return None if judged.broken else samples

    def _hidden(self, probe: SamplingProbe) -> set[str]:
        """Return the alternatives that have no effect on the tokens that the server reports."""
        due = processed(self.position.law, probe.asked)
        return {
            name
            for name, other in probe.instead.items()
            if np.array_equal(due, processed(self.position.law, other))
        }

    def _body(self, probe: SamplingProbe, n: int) -> dict[str, Any]:
        body = {"max_tokens": 1, "ignore_eos": True, "n": n, "seed": None}
        body |= probe.asked.body() | dict(probe.sent)
        if self.position.exact:
            return body | {"logprobs": 0}
        if not self.position.tells:
            return body | {"logprobs": len(self.position.law.ids)}
        window = list(self.position.window)
        return {"allowed_token_ids": window, **body, **told(window)}

    def _count(self, judged: Judged, samples: Sequence[Sample]) -> None:
        test, probe = judged.test, judged.probe
        if self.position.exact:
            law = self.position.law
            places = [law.places[sample.tokens[0]] for sample in samples]
            test.add(
                [sample.tokens[0] for sample in samples],
                processed(law, probe.asked)[places],
                {name: processed(law, other)[places] for name, other in probe.instead.items()},
            )
            return
        for sample in samples:
            law = self._law_of(sample, 0)
            token = sample.tokens[0]
            if token in law.places and token not in edges(law, probe.asked):
                _add(judged, law, token, NOTHING)

    def _law_of(self, sample: Sample, step: int, window: Sequence[int] = ()) -> Law:
        """Return the law of one draw: over the requested tokens, or over the likeliest."""
        known = sample.known[step]
        if self.position.tells:
            wanted = set(window or self.position.window)
            return Law.of({token: log for token, log in known.items() if token in wanted})
        top = sorted(known, key=known.__getitem__, reverse=True)[: len(self.position.law.ids)]
        return Law.of({token: known[token] for token in top}, among_others=True)

    def window(self) -> tuple[int, ...]:
        """Return the few tokens among which penalties show soonest."""
        return max(probes.windows(self.position.law), key=self._told_of_penalties)

    def _told_of_penalties(self, tokens: tuple[int, ...]) -> float:
        """Return an answer's information, in nats, on the penalty with the least effect."""
        body = Parameters(allowed_token_ids=tokens).body() | told(tokens)
        body |= {"max_tokens": ANSWER_TOKENS, "ignore_eos": True, "n": ANSWERS, "seed": None}
        try:
            samples = self.client.complete(self.position.prompt, body)
        except RefusedRequest:
            return 0.0
        return min(
            float(np.mean([self._apart(probe, tokens, sample) for sample in samples]))
            for probe in probes.counting(tokens)
        )

    def _apart(self, probe: SamplingProbe, tokens: tuple[int, ...], sample: Sample) -> float:
        """Return how far apart a probe and its nearest alternative are in an answer, in nats."""
        nats = dict.fromkeys(probe.instead, 0.0)
        for step in range(len(sample.tokens)):
            law = self._law_of(sample, step, tokens)
            seen = Seen((), sample.tokens[:step])
            due = processed(law, probe.asked, seen)
            left = np.isfinite(due)
            for name, other in probe.instead.items():
                ratio = due[left] - processed(law, other, seen)[left]
                nats[name] += float(np.exp(due[left]) @ ratio)
        return min(nats.values())

    def judge_steps(
        self,
        probe: SamplingProbe,
        tokens: tuple[int, ...],
        *,
        repeated: Sequence[int] = (),
        offsets: Logs | None = None,
    ) -> Judged:
        """Draw answers of several tokens among `tokens`, for effects of the tokens before.

        `repeated` is added to the prompt. `offsets` are the logits' possible constants.
        """
        columns = 1 if offsets is None else len(offsets)
        judged = Judged(probe, SequentialTest.between([*probe.instead], self.odds, columns))
        prompt = [*self.position.prompt, *repeated]
        drawn = 0
        while not judged.test.decided and drawn < self._most:
            judged.request = {
                "max_tokens": ANSWER_TOKENS, "ignore_eos": True, "n": ANSWERS, "seed": None,
                **probe.asked.body(), **dict(probe.sent), **told(tokens),
            }  # fmt: skip
            samples = self._samples(judged, prompt, ANSWERS)
            if samples is None:
                return judged
            drawn += sum(len(sample.tokens) for sample in samples)
            for sample in samples:
                for step, token in enumerate(sample.tokens):
                    law = self._law_of(sample, step, tokens)
                    if token not in law.places and self.position.tells:
                        judged.stray = token
                        return judged
                    if token in law.places:
                        seen = Seen(prompt, sample.tokens[:step])
                        _add(judged, law, token, seen, offsets)
        return judged


def _add(judged: Judged, law: Law, token: int, seen: Seen, offsets: Logs | None = None) -> None:
    """Count one draw by its own law."""
    place = law.places[token]
    offset = 0.0 if offsets is None else offsets[:, np.newaxis]

    def log(parameters: Parameters) -> Logs:
        return np.reshape(processed(law, parameters, seen, offset)[..., place], (1, -1))

    probe = judged.probe
    instead = {name: log(parameters) for name, parameters in probe.instead.items()}
    judged.test.add([token], log(probe.asked), instead)
