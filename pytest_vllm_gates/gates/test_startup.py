"""The server starts as it did when that was recorded, and its memory is what the plan says.

Catches the change nobody asked for: another attention backend, eager mode, a smaller cache. All of
it is in the log, which nobody reads while the server answers.
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
from pytest_vllm_gates.outcomes import MissingGolden, NotApplicable
from pytest_vllm_gates.server import startup_check

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch
    from pytest_vllm_gates.session.run import Subject

pytestmark = pytest.mark.startup


def test_starts_as_recorded(
    launch: Launch, lane: Lane, subject: Subject, golden: Goldens, evidence: Evidence
) -> None:
    name = golden.of_lane("startup", lane.name)
    now = launch.startup
    evidence.update(now.as_evidence())
    if not now.facts:
        raise NotApplicable("nothing tells how this server was started: its log is not here")
    if golden.recording:
        golden.record(name, startup_check.as_toml(subject.family.title, now))
        return
    text = golden.recorded(name)
    if text is None:
        raise MissingGolden(f"no golden {name!r}; record it: {golden.command}")
    changes = list(startup_check.changes(startup_check.parsed(text), now))
    assert not changes, (
        "the server starts otherwise than recorded:\n  "
        + "\n  ".join(changes)
        + f"\nIt answers all the same; how fast and how many is another question. "
        f"If the change is meant, accept it: {golden.command}"
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
        raise NotApplicable("the server does not tell how much memory its KV cache has")
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
        "the server's memory is not what was planned:\n  "
        + "\n  ".join(differences)
        + "\nCheck the flags and the model's config.json: vllm-gates plan --config "
        f"{subject.checkpoint.source}"
    )
