"""The fixtures of the load gate: what is planned, and what came of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.facts.outcome import Inconclusive

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.evidence import Evidence
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.facts.loaded import Loaded
    from pytest_vllm_gates.facts.said import Said
    from pytest_vllm_gates.facts.traffic import Traffic
    from pytest_vllm_gates.launching import Launch
    from pytest_vllm_gates.report.progress import Progress
    from pytest_vllm_gates.run import Run

STRETCHES = 8
"""So many of the longest prompt fit into the text that prompts are cut from."""


@pytest.fixture
def traffic(_run: Run, family: Family) -> Traffic:
    """The load this family is planned for on this lane."""
    from pytest_vllm_gates.facts.traffic import planned  # noqa: PLC0415

    return planned(family.load, _run.lane.load)


@pytest.fixture(scope="session")
def loads() -> dict[str, Loaded]:
    """What came of each family's load: one, whichever check asks first."""
    return {}


@pytest.fixture
def loaded(
    *,
    loads: dict[str, Loaded],
    traffic: Traffic,
    family: Family,
    server: Endpoint,
    launch: Launch,
    _run: Run,
    canary: Callable[[], Said],
    gates_progress: Progress,
    evidence: Evidence,
) -> Loaded:
    """Everything the server was put through, and what came of it."""
    from pytest_vllm_gates.drive import long_context  # noqa: PLC0415
    from pytest_vllm_gates.drive.loading import Loader  # noqa: PLC0415
    from pytest_vllm_gates.drive.measuring.measure import why_not  # noqa: PLC0415
    from pytest_vllm_gates.drive.robustness import ANSWER_LIMIT_S, context  # noqa: PLC0415
    from pytest_vllm_gates.drive.traces import take  # noqa: PLC0415
    from pytest_vllm_gates.facts import isolation  # noqa: PLC0415
    from pytest_vllm_gates.facts.long_context import load  # noqa: PLC0415
    from pytest_vllm_gates.judge.ramp import limit  # noqa: PLC0415

    options = _run.options
    if why := why_not(server):
        raise Inconclusive(why)
    if family.name not in loads:
        with long_context.metrics(server) as told:
            if told and not launch.owned and (others := told.load().in_flight):
                raise Inconclusive(
                    f"others use this server: {others} requests are in flight; judge it when idle"
                )
            text = long_context.token_ids(server, load(), STRETCHES * traffic.prompt_tokens[1])
            loader = Loader(
                endpoint=server,
                family=family,
                traffic=traffic,
                text=text,
                questions=isolation.load(),
                metrics=told,
                canary=canary,
                stall_s=_run.options.stall_timeout_s,
                answer_s=ANSWER_LIMIT_S,
                processes=launch.processes,
                folder=launch.folder,
                soak_s=_run.options.soak_s,
                workers=_run.options.load_workers,
                trace=take(options.trace, traffic) if options.trace else None,
                context=context(server, family.context.planned) if options.trace else 0,
                ramp=partial(limit, traffic=traffic) if options.ramp else None,
                progress=gates_progress,
            )
            try:
                loads[family.name] = loader.load()
            except RuntimeError as error:  # a client of ours was lost, not the server
                raise Inconclusive(f"the load could not be driven: {error}") from error
            finally:
                gates_progress.done()
    found = loads[family.name]
    if found.healthy.error:
        raise Inconclusive(f"a short question is not answered to begin with: {found.healthy.error}")
    evidence["server"] = found.as_evidence()
    if found.trace:
        evidence["trace"] = found.trace.as_evidence()
    return found
