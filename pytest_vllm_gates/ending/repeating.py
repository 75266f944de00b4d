"""What of a run the commands are made of that come after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.report import preflight
from pytest_vllm_gates.run import shipped_gates
from pytest_vllm_gates.verdict import next_steps
from pytest_vllm_gates.verdict.next_steps import Judged, Ran

if TYPE_CHECKING:
    import pytest

    from pytest_vllm_gates.session.run import Run, Subject
    from pytest_vllm_gates.verdict.verdict import Verdict


def following(verdict: Verdict, config: pytest.Config, run: Run) -> tuple[str, ...]:
    """Return the commands that would turn HOLD into PROMOTE; an incident sent again has none."""
    return () if run.options.repro else next_steps.commands(verdict, _ran(config, run))


def _ran(config: pytest.Config, run: Run) -> Ran:
    named = [one for one in config.option.file_or_dir if str(shipped_gates.GATES) in one]
    arguments = map(str, config.invocation_params.args)
    return Ran(
        arguments=tuple(one for one in arguments if one not in named),
        families={one.family.name: _judged(one, run) for one in run.subjects},
        gates=frozenset(shipped_gates.gate_files()),
    )


def _judged(subject: Subject, run: Run) -> Judged:
    boot = run.boots.get(subject.family.name)
    log = boot.evidence.get("log") if boot else None
    family, checkpoint, lane = subject.family, subject.checkpoint, run.lane
    return Judged(
        # Where the family was found from its weights, they are what was named.
        model=checkpoint.source if subject.why else family.name,
        log=str(log) if log else None,
        preflight=None if lane.base_url else preflight.command(family, checkpoint, lane.name),
    )
