"""A server's features change no answer and have their effect (--features).

Catches the combination that boots, reports itself healthy and dies at the first chat; drafts that
change a word or are never accepted; caches without hits; answers that differ in a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.features.battery import differences, invalid
from pytest_vllm_gates.features.catalog import STRUCTURED_OUTPUTS
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.against.feature_boots import FeatureBoot
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.features


@pytest.fixture
def version(feature_boot: FeatureBoot) -> str | None:
    """The version of vLLM that the run's own server reported before it ended."""
    return feature_boot.version


def test_serves_with_these_features(
    feature_boot: FeatureBoot, checking: Checking, evidence: Evidence
) -> None:
    combination, launch = feature_boot.combination, feature_boot.launch
    evidence["features"] = {feature.name: feature.title for feature in combination.features}
    evidence["serve"], evidence["env"] = dict(feature_boot.serve), combination.env
    evidence["boot_s"] = round(feature_boot.boot_s, 1)
    evidence["log"] = str(launch.folder) if launch.folder else None
    traits = dict.fromkeys((feature.name for feature in combination.features), "on")
    case = Case(combination.name, {"case": "boot", **traits})
    findings = []
    if combination.deployed:
        # The run's own server has the features on, and the boot gate judges that it is up.
        findings += _unanswered(case, feature_boot)
    elif not launch.ok:
        launch.check_surroundings()
        findings.append(Finding(case, launch.explain()))
    elif feature_boot.death:
        findings.append(Finding(case, f"the engine died of these questions: {feature_boot.death}"))
    else:
        findings += _unanswered(case, feature_boot)
        if feature_boot.adapters and feature_boot.adapters.broke:
            findings.append(
                Finding(case, f"requests to its adapters: {feature_boot.adapters.broke}")
            )
    checking(findings, [case], f"with {combination.name} the server does not serve")


def test_answers_as_without_them(
    *,
    feature_boot: FeatureBoot,
    checking: Checking,
    lane: Lane,
    evidence: Evidence,
) -> None:
    combination = feature_boot.combination
    _refuse_dead(feature_boot)
    names = [feature.name for feature in combination.features]
    findings, cases, equivalent = differences(
        feature_boot.without,
        feature_boot.answers,
        names,
        invariant=lane.batch_invariant,
        another_grammar=any(one.kind == STRUCTURED_OUTPUTS for one in combination.features),
    )
    evidence["compared"], evidence["equivalent"] = len(cases), equivalent
    checking(findings, cases, f"with {combination.name} answers differ from those without")


def test_structured_output_is_valid(
    feature_boot: FeatureBoot, checking: Checking, evidence: Evidence
) -> None:
    combination = feature_boot.combination
    _refuse_dead(feature_boot)
    names = [feature.name for feature in combination.features]
    findings, cases = invalid(feature_boot.answers, names)
    evidence["judged"] = len(cases)
    if not cases:
        raise NotApplicable("no request with structured output was answered to its end")
    checking(findings, cases, f"with {combination.name} structured output is invalid")


def test_does_what_it_is_for(
    feature_boot: FeatureBoot, checking: Checking, evidence: Evidence
) -> None:
    combination = feature_boot.combination
    _refuse_dead(feature_boot)
    evidence["rose"] = feature_boot.rose
    names = dict.fromkeys((one.name for one in combination.features), "on")
    choices = feature_boot.choices
    asked = {
        topic: Case(words, {"topic": topic, "case": words, **names})
        for topic, words in choices.asked.items()
    }
    findings = [Finding(asked[one.topic], one.says) for one in choices.fallbacks]
    cases = [*asked.values()]
    for feature in combination.features:
        for name in (*feature.rises, *feature.rests):
            case = Case(f"{feature.name}: {name}", {"case": name, **names})
            cases.append(case)
            rose = feature_boot.rose[name]
            if name in feature.rises and rose <= 0:
                findings.append(Finding(case, "the counter did not rise"))
            if name in feature.rests and rose:
                findings.append(Finding(case, f"the counter rose by {rose:g}"))
    if not cases:
        raise NotApplicable("no counter and no line of the log shows the effect of these features")
    checking(findings, cases, f"{combination.name} has no effect")


def _unanswered(case: Case, boot: FeatureBoot) -> list[Finding]:
    return [Finding(case, f"{name}: {error}") for name, error in boot.answers.errors.items()]


def _refuse_dead(boot: FeatureBoot) -> None:
    """Raise `NotApplicable` for a combination that does not serve: the first test reports it.

    Raises `Inconclusive` if the lane does not serve without its own features.
    """
    plain_died = boot.combination.deployed and (boot.death or not boot.launch.ok)
    if plain_died:
        why = boot.death or boot.launch.explain()
        raise Inconclusive(f"without its features the lane's server does not serve: {why}")
    if boot.death or not boot.answers.by_request:
        raise NotApplicable(f"with {boot.combination.name} the server does not serve")
