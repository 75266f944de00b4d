"""A LoRA adapter's answers are its own: not its base model's, not another adapter's.

Catches adapters that are ignored or mixed up in a batch, caches that confuse their prompts, a base
model that they change, and adapters that are refused only at the first chat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.adapters import checks
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.adapters.types import AdapterAnswers
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.against.feature_boots import FeatureBoot
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.adapters


@pytest.fixture
def version(adapter_boot: FeatureBoot | None, request: pytest.FixtureRequest) -> str | None:
    """The version of vLLM, as the run's own server reported it."""
    from pytest_vllm_gates.client import http  # noqa: PLC0415 - httpx2

    if adapter_boot is not None:
        return adapter_boot.version
    return http.version(request.getfixturevalue("server"))


def test_adapters_are_listed_with_their_base(
    adapter_answers: AdapterAnswers, checking: Checking, evidence: Evidence
) -> None:
    evidence["models"] = {entry.id: entry.parent for entry in adapter_answers.listed}
    findings, cases = checks.lists(adapter_answers)
    checking(findings, cases, "A client cannot find an adapter in the list of models")


def test_answers_name_their_adapter(adapter_answers: AdapterAnswers, checking: Checking) -> None:
    findings, cases = checks.names(adapter_answers)
    checking(findings, cases, "An answer names another model than the requested one")


def test_each_adapter_answers_for_itself(
    adapter_answers: AdapterAnswers, checking: Checking, evidence: Evidence
) -> None:
    evidence["answers"] = {
        f"{answer.requested or 'base'}: {answer.question}": answer.completion.shown
        for answer in adapter_answers.alone
    }
    findings, cases = checks.differ(adapter_answers)
    checking(findings, cases, "An adapter's answers are not its own")


def test_base_model_stays_as_it_was(
    adapter_answers: AdapterAnswers, lane: Lane, checking: Checking
) -> None:
    findings, cases = checks.stays(adapter_answers, invariant=lane.batch_invariant)
    checking(findings, cases, "After its adapters were used, the base model's answers differ")


def test_adapters_keep_apart_in_one_batch(
    adapter_answers: AdapterAnswers, lane: Lane, checking: Checking
) -> None:
    findings, cases = checks.apart(adapter_answers, invariant=lane.batch_invariant)
    checking(findings, cases, "In a batch with other adapters' requests, an answer differs")


def test_adapters_keep_apart_in_the_prefix_cache(
    adapter_answers: AdapterAnswers, lane: Lane, checking: Checking, evidence: Evidence
) -> None:
    evidence["cached_tokens"] = adapter_answers.cached_tokens
    evidence["answers"] = {
        answer.requested or "base": answer.completion.shown for answer in adapter_answers.cold
    }
    if checks.all_alike(adapter_answers.cold):
        raise NotApplicable("all models answer the long prompt alike: a mix-up cannot be detected")
    findings, cases = checks.on_prefixes(adapter_answers, invariant=lane.batch_invariant)
    if not findings and not adapter_answers.cached_tokens:
        raise NotApplicable(
            "no token of these prompts came from a prefix cache: if the server has none, "
            "boot one with --features lora-two+prefix-caching"
        )
    checking(findings, cases, "After another adapter's request, the same prompt has another answer")


def test_unknown_adapters_are_refused(adapter_answers: AdapterAnswers, checking: Checking) -> None:
    findings, cases = checks.refuses(adapter_answers)
    checking(findings, cases, "A request for an unknown adapter gets no error")


def test_unfit_adapters_are_refused_when_loaded(
    adapter_answers: AdapterAnswers, checking: Checking, evidence: Evidence
) -> None:
    if adapter_answers.no_loading:
        raise NotApplicable(adapter_answers.no_loading)
    evidence["answered"] = {
        step.name: f"{step.status}: {step.text}" for step in adapter_answers.unfit
    }
    findings, cases = checks.refuses_unfit(adapter_answers)
    checking(findings, cases, "An adapter that does not fit is refused only when it is used")


def test_adapters_are_loaded_and_unloaded(
    adapter_answers: AdapterAnswers, lane: Lane, checking: Checking, evidence: Evidence
) -> None:
    if adapter_answers.no_loading:
        raise NotApplicable(adapter_answers.no_loading)
    evidence["answered"] = {
        step.name: [step.status, step.answer.shown if step.answer else ""]
        for step in adapter_answers.loads
    }
    findings, cases = checks.loads(adapter_answers, invariant=lane.batch_invariant)
    checking(findings, cases, "A running server loads or drops an adapter wrongly")
