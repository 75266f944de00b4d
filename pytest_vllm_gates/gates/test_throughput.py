"""The server is as fast as before, or as the other lane: with stated odds of error.

Catches slowdowns that no health check shows: decode three times slower, a cache without hits, a
fallback to another kernel. Compared with figures recorded on this machine or, with --against,
with another lane, boot by boot.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.outcomes import Inconclusive, MissingBaseline, NotApplicable
from pytest_vllm_gates.throughput import blocks as throughput_blocks, calibration, decide
from pytest_vllm_gates.throughput.conditions import compares
from pytest_vllm_gates.throughput.decision import Conclusion, too_few

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.catalog.plans import Block, Pair, Scatter, ThroughputPlan
    from pytest_vllm_gates.session.against.boots import LaneComparison
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.throughput.baselines import Baselines
    from pytest_vllm_gates.throughput.decision import Decision

pytestmark = pytest.mark.throughput


def test_is_as_fast_as_recorded(
    *,
    other_lane: Lane | None,
    lane: Lane,
    plan: ThroughputPlan,
    baselines: Baselines,
    record: Callable[[Sequence[Block]], None] | None,
    measure_blocks: Callable[[int], Sequence[Block]],
    evidence: Evidence,
) -> None:
    if other_lane and compares(lane, other_lane):
        raise NotApplicable(f"it is compared with lane {other_lane.name} itself (--against)")
    recorded, differ = ([], []) if record else baselines.recorded()
    if not recorded and not record:
        reason = "no baseline is recorded for this machine and what is served on it"
        if differ:
            reason += " (the newest one differs: " + "; ".join(differ) + ")"
        raise MissingBaseline(
            f"{reason}; record one: {baselines.command}\nit would be in {baselines.folder}"
        )
    if record:
        blocks = measure_blocks(0)
        evidence["figures"] = _figures(blocks)
        figures, void = decide.boot_slowdowns(blocks, plan, by_speed=False)
        if not figures:
            few = too_few(void, len(blocks))
            raise Inconclusive(f"nothing is recorded: {few}; record it on an idle machine")
        record(blocks)
        return
    rounds: list[tuple[Decision, Sequence[Block]]] = []
    for number in range(plan.baseline.rounds):
        blocks = measure_blocks(number)
        recorded_boots = [baseline.blocks for baseline in recorded]
        rounds.append((decide.against_baseline(blocks, recorded_boots, plan), blocks))
        if rounds[-1][0].answer is Conclusion.NO_REGRESSION:
            break
    decision = decide.fastest([decision for decision, _ in rounds])
    blocks = next(blocks for other, blocks in rounds if other is decision)
    before = [block for baseline in recorded for block in baseline.blocks]
    evidence["figures"] = _figures(blocks)
    evidence["blocks"] = throughput_blocks.side_by_side(blocks, before)
    evidence["decision"] = decision.as_evidence()
    evidence["rounds"] = [decision.brief() for decision, _ in rounds]
    evidence["baseline"] = [baseline.path.name for baseline in recorded]
    sentence = decision.sentence(plan.odds)
    if decision.answer is Conclusion.INCONCLUSIVE:
        raise Inconclusive(
            f"{sentence}\nmeasure again on an idle machine, or record more boots: "
            f"{baselines.command}"
        )
    assert decision.answer is Conclusion.NO_REGRESSION, (
        f"{sentence}\nagainst {len(recorded)} boots recorded with "
        f"{recorded[-1].versions.get('vllm', recorded[-1].versions)} in {baselines.folder}\n"
        f"If the change is intended, record it: {baselines.command}"
    )


@pytest.mark.ends_the_server
def test_is_as_fast_as_the_other_lane(
    *,
    other_lane: Lane | None,
    lane: Lane,
    calibrate: Callable[[Scatter, Sequence[Pair]], None] | None,
    add_note: Callable[[str], None],
    request: pytest.FixtureRequest,
    evidence: Evidence,
) -> None:
    if not other_lane:
        raise NotApplicable("no other lane was named: --against NAME")
    comparison: LaneComparison = request.getfixturevalue("comparison")
    plan, same = comparison.plan, other_lane.name == lane.name
    decision = comparison.measure(whole=same)
    evidence["against"] = other_lane.name
    evidence["decision"] = decision.as_evidence()
    evidence["pairs"] = [
        {
            "slowdowns": decide.pair_slowdowns(pair, plan)[0],
            "boots_s": round(pair.boots_s, 1),
            "blocks_s": round(pair.took_s, 1),
        }
        for pair in comparison.pairs
    ]
    evidence["blocks"] = throughput_blocks.of_pairs(comparison.pairs)
    evidence.update(comparison.evidence())
    sentence = f"{lane.name} against {other_lane.name}: {decision.sentence(plan.odds)}"
    name = comparison.subject.family.name
    add_note(f"{name}: {sentence}")
    if same and not lane.base_url and (scatter := calibration.scatter_of(comparison.pairs, plan)):
        evidence["pair_sd"] = scatter.model_dump()
        add_note(f"{name}: {calibration.summary(scatter, comparison.pairs, plan)}")
        if calibrate:
            calibrate(scatter, comparison.pairs)
    changes = "".join(f"\n  {change}" for change in comparison.start_changes)
    if decision.answer is Conclusion.INCONCLUSIVE:
        raise Inconclusive(sentence)
    assert decision.answer is Conclusion.NO_REGRESSION, sentence + (
        f"\ndifferences of this lane's start:{changes}" if changes else ""
    )


def _figures(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return the medians of a boot's blocks by the field's names."""

    def median(name: str) -> float | None:
        values = [value for block in blocks if (value := getattr(block, name)) is not None]
        return round(statistics.median(values), 5) if values else None

    names = (
        "output_tokens_per_s", "ttft_s", "itl_s", "cached", "steal", "others", "speed",
        "server_cpu_s",
    )  # fmt: skip
    meanwhile = {name for block in blocks for name in block.context}
    return {
        "blocks": len(blocks),
        **{name: median(name) for name in names},
        "meanwhile": {
            name: round(statistics.fmean(block.context.get(name, 0.0) for block in blocks), 3)
            for name in sorted(meanwhile)
        },
    }
