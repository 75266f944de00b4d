"""The server starts with the requested flags, as recorded, and with the planned memory.

Catches features that vLLM turns off or replaces by itself: prefix caching, an attention backend, a
smaller cache. All of it is only in the log, and the server answers all the same.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.checkpoints import prompt_files
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import fit, plan as memory_plan_plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import Room
from pytest_vllm_gates.outcomes import Case, Finding, MissingGolden, NotApplicable
from pytest_vllm_gates.server import fallbacks, startup_check

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.server.fallbacks import Choices
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch
    from pytest_vllm_gates.session.run import Subject

pytestmark = pytest.mark.startup


@pytest.fixture
def choices(launch: Launch, serve: dict[str, Any], lane: Lane, version: str | None) -> Choices:
    """The choices of vLLM for the flags, from its log; raises `NotApplicable` without a log."""
    if not launch.startup.facts:
        raise NotApplicable("the start of this server is not known: its log is not here")
    return fallbacks.of_log(launch.log, serve, lane.env, version)


def test_serves_what_was_asked_for(
    choices: Choices, checking: Checking, evidence: Evidence
) -> None:
    evidence["asked"], evidence["decided"] = dict(choices.asked), dict(choices.decisions)
    if not choices.asked:
        raise NotApplicable("no flag requests a feature that vLLM may turn off by itself")
    cases = {
        topic: Case(asked, {"topic": topic, "case": asked})
        for topic, asked in choices.asked.items()
    }
    findings = [Finding(cases[one.topic], one.says) for one in choices.fallbacks]
    checking(
        findings,
        [*cases.values()],
        "vLLM does not serve what its flags request",
        "drop the flag if the fallback is intended, or change the setting that excludes it",
    )


def test_starts_as_recorded(
    *,
    launch: Launch,
    lane: Lane,
    subject: Subject,
    choices: Choices,
    golden: Goldens,
    evidence: Evidence,
) -> None:
    name = golden.of_lane("startup", lane.name)
    now = dataclasses.replace(launch.startup, decisions=choices.decisions)
    evidence.update(now.as_evidence())
    if golden.recording:
        golden.record(name, startup_check.as_toml(subject.family.title, now))
        return
    text = golden.recorded(name)
    if text is None:
        raise MissingGolden(f"no golden {name!r}; record it: {golden.command}")
    changes = list(startup_check.changes(startup_check.parsed(text), now))
    assert not changes, (
        "the server's start differs from the recorded one:\n  "
        + "\n  ".join(changes)
        + f"\nThe server still answers, but its speed or capacity may differ. "
        f"If the change is intended, accept it: {golden.command}"
    )


def test_memory_is_as_planned(
    *,
    launch: Launch,
    subject: Subject,
    serve: dict[str, Any],
    version: str | None,
    evidence: Evidence,
) -> None:
    startup = launch.startup
    if startup.kv_bytes is None or "kv_tokens" not in startup.figures:
        raise NotApplicable("the server does not report the memory of its KV cache")
    config = prompt_files.config(subject.checkpoint.source)
    try:
        planned = memory_plan_plan.plan(
            shape_of(config),
            fit.started(serve, version, startup),
            Room(kv_memory=startup.kv_bytes),
        )
    except UserError as error:
        raise NotApplicable(f"no plan can be made: {error}") from error
    evidence["told"], evidence["planned"] = dict(startup.figures), dataclasses.asdict(planned)
    if planned.refused:
        raise NotApplicable(f"no plan can be made: {'; '.join(planned.refused)}")
    differences = list(fit.differences(planned, startup))
    assert not differences, (
        "the server's memory differs from the plan:\n  "
        + "\n  ".join(differences)
        + "\nCheck the flags and the model's config.json: vllm-gates plan --config "
        f"{subject.checkpoint.source}"
    )
