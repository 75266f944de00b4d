"""The fixtures of the throughput gate: its plan, what was measured, and what it is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.facts.outcome import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.against import Comparison
    from pytest_vllm_gates.drive.baselines import Baselines
    from pytest_vllm_gates.evidence import Evidence
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.facts.lane import Lane
    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.facts.throughput import Block, Pair, Plan
    from pytest_vllm_gates.launching import Launch
    from pytest_vllm_gates.report.progress import Progress
    from pytest_vllm_gates.run import Run, Subject

BASELINES = "baselines"


@pytest.fixture
def plan(_run: Run, family: Family) -> Plan:
    """How this family's throughput is measured on this lane."""
    from pytest_vllm_gates.facts import throughput  # noqa: PLC0415

    return throughput.planned(family.throughput, _run.lane.throughput)


@pytest.fixture
def other_lane(_run: Run) -> Lane | None:
    """The lane that this one is measured against, where one was named."""
    return _run.against


@pytest.fixture
def baselines(
    _run: Run,
    subject: Subject,
    serve: dict[str, Any],
    plan: Plan,
    request: pytest.FixtureRequest,
) -> Baselines:
    """What was recorded on this machine for this family, checkpoint and lane."""
    from pytest_vllm_gates.drive.baselines import Baselines  # noqa: PLC0415 - heavy
    from pytest_vllm_gates.drive.conditions import conditions  # noqa: PLC0415
    from pytest_vllm_gates.facts.bundle import MAIN_PACKAGES  # noqa: PLC0415
    from pytest_vllm_gates.goldens import FOLDER  # noqa: PLC0415

    lane, name = _run.lane, subject.family.name
    shown = {name: _run.versions[name] for name in MAIN_PACKAGES if name in _run.versions}
    if not shown:  # only the server itself can say, while it is up
        shown = {"vllm": request.getfixturevalue("version") or "not told"}
    which = f"--base-url {lane.base_url}" if _run.options.base_url else f"--lane {lane.name}"
    return Baselines(
        root=_run.options.rootdir / FOLDER / BASELINES,
        now=conditions(
            machine=_run.machine,
            lane=lane,
            family=name,
            checkpoint=subject.checkpoint,
            serve=serve,
            plan=plan,
        ),
        versions=shown,
        command=f"pytest --model {name} {which} -m throughput --update-baseline",
    )


@pytest.fixture
def record(
    _run: Run, baselines: Baselines, serve: dict[str, Any]
) -> Callable[[Sequence[Block]], None] | None:
    """Write a boot's blocks as a baseline; None unless that was asked for."""
    if not _run.options.update_baseline:
        return None
    machine = _run.machine
    # What a baseline says of its machine and lane besides what pytest-benchmark says.
    about = {
        "gpus": list(machine.gpus),
        "driver": machine.driver.version,
        "cuda": machine.driver.cuda,
        "lane": _run.lane.name,
        "lane_versions": dict(_run.versions),
        "flags": serve,
    }

    def written(blocks: Sequence[Block]) -> None:
        _run.baselines.append(baselines.record(blocks, about))

    return written


@pytest.fixture
def measure_blocks(
    _run: Run, plan: Plan, server: Endpoint, launch: Launch, gates_progress: Progress
) -> Callable[[], Sequence[Block]]:
    """Measure this boot, when asked."""
    from pytest_vllm_gates import against  # noqa: PLC0415
    from pytest_vllm_gates.drive import long_context  # noqa: PLC0415
    from pytest_vllm_gates.drive.blocks import Driver  # noqa: PLC0415
    from pytest_vllm_gates.drive.measuring.measure import why_not  # noqa: PLC0415
    from pytest_vllm_gates.drive.yardstick import Yardstick  # noqa: PLC0415
    from pytest_vllm_gates.facts.long_context import load  # noqa: PLC0415

    def measured() -> Sequence[Block]:
        if why := why_not(server):
            raise Inconclusive(why)
        text = long_context.token_ids(server, load(), against.STRETCHES * plan.prompt_tokens)
        blocks: list[Block] = []
        with against.server_of(launch, _run) as one, Yardstick() as yardstick:
            if one.metrics and not launch.owned and (others := one.metrics.load().in_flight):
                raise Inconclusive(
                    f"others use this server: {others} requests are in flight; measure it when idle"
                )
            # Whose work a GPU's or another machine's processor does is no faster for ours.
            by_speed = launch.owned and not _run.machine.gpus
            driver = Driver(
                plan,
                text,
                _run.options.stall_timeout_s,
                yardstick.speed if by_speed else None,
            )
            for block in driver.blocks(one, "baseline", plan.baseline.blocks):
                blocks.append(block)
                gates_progress(
                    f"{_run.lane.name}: block {len(blocks)} of {plan.baseline.blocks}, "
                    f"{block.output_tokens_per_s:.0f} tokens/s"
                )
        gates_progress.done()
        return blocks

    return measured


@pytest.fixture
def comparison(
    *,
    _run: Run,
    subject: Subject,
    other_lane: Lane | None,
    plan: Plan,
    baselines: Baselines,
    launch: Launch,
    gates_progress: Progress,
    tmp_path_factory: pytest.TempPathFactory,
    evidence: Evidence,
) -> Comparison:
    """The lane and the one it is measured against, nothing booted yet but this run's own server."""
    from pytest_vllm_gates.against import Comparison  # noqa: PLC0415

    assert other_lane  # noqa: S101 - or nothing asks for it
    if other_lane.base_url or _run.lane.base_url:
        raise NotApplicable(
            "a lane that already runs cannot be booted again and again: its baseline is what counts"
        )
    folder = _run.options.report_dir or tmp_path_factory.mktemp("throughput")
    if known := baselines.calibration():
        here = {"pair_sd": known.pair_sd, "degrees": known.pairs}
        plan = plan.model_copy(update={"against": plan.against.model_copy(update=here)})
        evidence["calibration"] = here
    if most := _run.options.pairs:
        plan = plan.of_pairs(most)
    found = Comparison(
        ours=_run,
        theirs=_run.of(other_lane),
        subject=subject,
        plan=plan,
        folder=folder / "against",
        progress=gates_progress,
    )
    launch.stop()  # its processor, or its memory, is what the two are to have
    return found


@pytest.fixture
def tell(_run: Run) -> Callable[[str], None]:
    """Say something at the end of the run, below its verdict."""
    return _run.notes.append


@pytest.fixture
def calibrate(_run: Run, baselines: Baselines) -> Callable[[float, Sequence[Pair]], None] | None:
    """Write what an A/A run found of this machine; None unless that was asked for."""
    if not _run.options.update_baseline:
        return None

    def written(pair_sd: float, pairs: Sequence[Pair]) -> None:
        _run.baselines.append(baselines.calibrate(pair_sd, pairs))

    return written
