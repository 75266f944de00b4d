"""Every sampling parameter has its documented effect, or is refused.

Catches parameters that silently do nothing, unrequested defaults, seeds that do not repeat, and
limits that do not end an answer. It needs no baseline: tokens are compared with the server's own
log-probabilities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive, NotApplicable
from pytest_vllm_gates.sampling import checks, probes, prompt_parameters, seeds
from pytest_vllm_gates.sampling.client import RefusedRequest
from pytest_vllm_gates.sampling.effects import measure_effects, missing_effects
from pytest_vllm_gates.sampling.measure import OFFSETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.sampling.measure import Judged, Sampler
    from pytest_vllm_gates.sampling.plan import SamplingPlan
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.sampling

ANSWERS = 48
TOKENS = 8
STOPPING = 0.3
"""The share of the probability that stop tokens have."""
LEAST = 4
SHORT = 3
THOUGHT_TOKENS = 96
LEAST_THOUGHT = 8
SLACK = 4
"""Tokens of an opening tag, and of the end of the reasoning."""


def test_nothing_else_shapes_the_draws(
    sampler: Sampler, evidence: Evidence, checking: Checking
) -> None:
    judged = [sampler.judge(probes.untouched())]
    conclude(
        judged, sampler, evidence, checking, "tokens are not drawn with the reported probabilities"
    )


def test_a_parameter_shapes_the_draws(
    sampler: Sampler, evidence: Evidence, checking: Checking
) -> None:
    judged = [sampler.judge(probe) for probe in probes.shaping(sampler.position.law)]
    conclude(judged, sampler, evidence, checking, "a parameter has another effect than documented")


def test_a_penalty_counts_what_was_said(
    sampler: Sampler, evidence: Evidence, checking: Checking
) -> None:
    tokens = sampler.window()
    judged = [sampler.judge_steps(probe, tokens) for probe in probes.counting(tokens)]
    repeated = probes.repeating(tokens)
    judged += [sampler.judge_steps(repeated, tokens, repeated=tokens[::2], offsets=OFFSETS)]
    conclude(judged, sampler, evidence, checking, "a penalty has another effect than documented")


def test_a_seed_decides_the_draws(sampler: Sampler, evidence: Evidence, checking: Checking) -> None:
    request = seeds.body(seeds.SEEDS[0])
    try:
        answers = seeds.ask(sampler.client, sampler.position.prompt)
    except RefusedRequest as refusal:
        raise NotApplicable(f"a seed is refused: {refusal}") from refusal
    tests = {
        "the same seed again": (checks.repeats, answers.again),
        "the same seed among others": (checks.repeats, answers.among_others),
        "another seed": (checks.differs, answers.other_seeds),
        "another seed at the same time": (checks.differs, answers.other_seeds_together),
        "several answers with one seed": (checks.differs, answers.one_request),
        "no seed": (checks.differs, answers.no_seed),
    }
    cases, findings, undecided = [], [], []
    for name, (test, pairs) in tests.items():
        result = test(pairs, sampler.odds)
        case = Case(name, {"case": name}, request)
        cases.append(case)
        evidence[name] = {"compared": result.draws, "nats": round(result.evidence, 1)}
        if result.fails:
            findings.append(Finding(case, f"seed: the answers are {result.likeliest}"))
        elif not result.passes:
            undecided.append(f"{name}: {result.draws} tokens are not enough to decide")
    if not findings and undecided:
        raise Inconclusive("; ".join(undecided))
    checking(findings, cases, "a seed does not decide what is drawn")


def test_a_limit_ends_the_answer(sampler: Sampler, evidence: Evidence, checking: Checking) -> None:
    law, client, prompt = sampler.position.law, sampler.client, sampler.position.prompt
    sums = np.cumsum(law.probabilities)
    stops = [int(token) for token in law.ids[: int(np.argmax(sums >= STOPPING)) + 1]]
    stopping = float(sums[len(stops) - 1]) * sampler.position.mass
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    stopped = {
        **plain, "n": ANSWERS, "max_tokens": TOKENS, "stop_token_ids": stops, "ignore_eos": True,
    }  # fmt: skip
    counted = {**plain, "n": SHORT, "max_tokens": SHORT, "ignore_eos": True}
    chat = {
        "messages": [{"role": "user", "content": "Hello!"}],
        "max_completion_tokens": SHORT,
        "ignore_eos": True,
    }
    requests: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], str | None]]] = {
        "n": (counted, lambda body: checks.count_fault(client.complete(prompt, body), SHORT)),
        "max_tokens": (
            counted,
            lambda body: checks.length_fault(
                "max_tokens", [len(s.tokens) for s in client.complete(prompt, body)], SHORT
            ),
        ),
        "max_completion_tokens": (
            chat,
            lambda body: checks.length_fault(
                "max_completion_tokens", [client.chat(body)["usage"]["completion_tokens"]], SHORT
            ),
        ),
        "stop_token_ids": (
            stopped,
            lambda body: checks.stop_fault(
                client.complete(prompt, body), stops, stopping, sampler.odds
            ),
        ),
        "min_tokens": (
            {**stopped, "min_tokens": LEAST},
            lambda body: checks.least_fault(client.complete(prompt, body), LEAST),
        ),
    }
    cases, findings, refused = [], [], {}
    for name, (body, fault) in requests.items():
        case = Case(name, {"case": name}, body)
        try:
            sentence = fault(body)
        except RefusedRequest as refusal:
            refused[name] = str(refusal)
            continue
        cases.append(case)
        if sentence:
            findings.append(Finding(case, sentence))
    evidence["refused"] = refused
    evidence["tokens"] = client.tokens
    checking(findings, cases, "an answer does not have the requested length")


def test_thinking_keeps_to_its_budget(
    *,
    sampler: Sampler,
    sampling_plan: SamplingPlan,
    family: Family,
    server: Endpoint,
    evidence: Evidence,
    checking: Checking,
) -> None:
    if family.thinking is None:
        raise NotApplicable("the family does not think")
    close = http.token_ids(server, family.thinking.close)

    def reasoned(text: str, **more: Any) -> tuple[int, dict[str, Any]]:
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": THOUGHT_TOKENS,
            "temperature": 0,
            **more,
        }
        if kwargs := family.thinking_kwargs("on"):
            body["chat_template_kwargs"] = kwargs
        choice = sampler.client.chat(body)["choices"][0]
        return checks.thought(choice.get("token_ids") or (), close), body

    lengths = {text: reasoned(text)[0] for text in sampling_plan.thoughts}
    longest = max(lengths, key=lengths.__getitem__)
    evidence["reasoning_tokens"] = lengths
    if lengths[longest] < LEAST_THOUGHT:
        raise Inconclusive(f"the longest reasoning has {lengths[longest]} tokens: nothing to cut")
    budget = 2
    try:
        limited, body = reasoned(longest, thinking_token_budget=budget)
    except RefusedRequest as refusal:
        evidence["refused"] = str(refusal)
        return
    evidence["within_budget"] = limited
    case = Case("thinking_token_budget", {"case": "thinking_token_budget"}, body)
    sentence = checks.budget_fault(lengths[longest], limited, budget, SLACK)
    findings = [Finding(case, sentence)] if sentence else []
    checking(findings, [case], "reasoning exceeds its budget")


def test_an_answer_has_what_was_asked(
    *,
    chat: Chat,
    server: Endpoint,
    family: Family,
    trivial: Conversation,
    checking: Checking,
    evidence: Evidence,
) -> None:
    effects = measure_effects(chat.client, server, trivial.body(family))
    evidence["refused"] = {effect.name: effect.refused for effect in effects if effect.refused}
    taken = [effect for effect in effects if not effect.refused]
    cases = [Case(effect.name, {"parameter": effect.parameter}, effect.request) for effect in taken]
    findings = [
        Finding(case, sentence)
        for case, effect in zip(cases, taken, strict=True)
        for sentence in missing_effects(effect)
    ]
    impact = "A parameter that a client sets is taken and ignored"
    next_step = (
        "Send the request without the gateway, then without speculation, to find which drops it."
    )
    checking(findings, cases, impact, next_step)


def test_a_prompts_parameters_are_kept_or_refused(
    server: Endpoint,
    family: Family,
    trivial: Conversation,
    checking: Checking,
    evidence: Evidence,
) -> None:
    measured = prompt_parameters.measure(server, trivial.body(family))
    if measured[0].refused:
        raise NotApplicable(f"the server answers no completion: {measured[0].text}")
    evidence["requests"] = len(measured)
    evidence["refused"] = {each.name: each.text for each in measured if each.refused}
    cases = {
        each.name: Case(each.name, {"parameter": each.name}, each.request)
        for each in measured
        if not each.refused
    }
    findings = [
        Finding(cases[each.name], sentence)
        for each, sentence in prompt_parameters.ignored(measured)
    ]
    impact = "A parameter that a client sets is taken and ignored"
    checking(findings, [*cases.values()], impact)


def conclude(
    judged: Sequence[Judged], sampler: Sampler, evidence: Evidence, checking: Checking, sees: str
) -> None:
    """End a test with its probes: record them, then fail, pass or report what is undecided."""
    position = sampler.position
    evidence["alarm"], evidence["miss"] = sampler.odds.alarm, sampler.odds.miss
    evidence["law"] = {
        "tokens": len(position.law.ids),
        "whole": position.whole,
        "exact": position.exact,
        "entropy_nats": round(position.law.entropy, 2),
    }
    cases, findings = [], []
    for number, each in enumerate(judged):
        name = each.probe.name
        evidence[f"{name} ({number})"] = each.as_evidence()
        case = Case(f"{name} ({number})", {"case": name}, each.request)
        cases.append(case)
        says = checks.sentence(each.test, name, each.probe.asked) or each.broken
        if says:
            findings.append(Finding(case, says))
    evidence["sampled_tokens"] = sampler.client.tokens
    undecided = [sentence for each in judged if (sentence := each.undecided)]
    if not findings and undecided:
        raise Inconclusive("; ".join(undecided))
    checking(findings, cases, sees)
