"""Slower servers fail, equally fast ones pass, doubt is inconclusive; unfit blocks do not count."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog.plans import Block, BlockGroup, Pair, planned_throughput
from pytest_vllm_gates.throughput import decide
from pytest_vllm_gates.throughput.decision import PRIMARY, Conclusion, Decision
from pytest_vllm_gates.throughput.statistics import Mean
from throughput.boot_noise import GROUPS, PLAN, Noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.catalog.plans import ThroughputPlan


def pairs(count: int, slower: float = 0.0, seed: int = 1) -> list[Pair]:
    noise = Noise(seed)
    return [noise.pair(slower) for _ in range(count)]


def test_equal_speed_passes() -> None:
    noise = Noise()
    decision = decide.against_baseline(noise.boot(), [noise.boot() for _ in range(4)], PLAN)
    assert decision.answer is Conclusion.NO_REGRESSION
    assert "at most 1.0% of all gates are wrong alarms" in decision.sentence(PLAN.odds)


def test_slower_boot_is_a_regression_with_its_change() -> None:
    noise = Noise()
    decision = decide.against_baseline(noise.boot(math.log(3)), [noise.boot()], PLAN)
    assert decision.answer is Conclusion.REGRESSION
    assert -0.68 < decision.as_evidence()["changes"]["output_tokens_per_s"]["change"] < -0.65


def test_one_recorded_boot_is_not_enough_for_a_small_margin() -> None:
    noise = Noise()
    slower = -math.log1p(-PLAN.baseline.margin) * 0.6
    decision = decide.against_baseline(noise.boot(slower), [noise.boot()], PLAN)
    assert decision.answer is Conclusion.INCONCLUSIVE


def test_faster_is_not_a_regression() -> None:
    noise = Noise()
    decision = decide.against_baseline(noise.boot(-0.5), [noise.boot()] * 3, PLAN)
    assert decision.answer is Conclusion.NO_REGRESSION


def shared_machine(**changes: Any) -> ThroughputPlan:
    """Return the plan of a machine whose pace others change."""
    scatter = dict.fromkeys(("output_tokens_per_s", "ttft_s", "itl_s"), 0.08)
    baseline = {"margin": 0.5, "alarm_above": 0.3, "rounds": 3, "boot_sd": scatter, **changes}
    return planned_throughput({"baseline": baseline})


def test_a_loss_that_the_machine_alone_may_cost_is_inconclusive() -> None:
    noise = Noise()
    recorded, slower = [noise.boot()], noise.boot(math.log(1 / 0.6))
    blamed = decide.against_baseline(slower, recorded, shared_machine(alarm_above=0.0))
    assert blamed.answer is Conclusion.REGRESSION
    decision = decide.against_baseline(slower, recorded, shared_machine())
    assert decision.answer is Conclusion.INCONCLUSIVE
    assert "itl_s" not in decision.why
    thrice = decide.against_baseline(noise.boot(math.log(3)), recorded, shared_machine())
    assert thrice.answer is Conclusion.REGRESSION
    assert "itl_s is surely worse" in thrice.why


def test_a_boot_is_judged_by_its_fastest_round() -> None:
    noise, plan = Noise(), shared_machine()
    recorded = [noise.boot()]
    slow, slower, quick = (
        decide.against_baseline(noise.boot(slowdown), recorded, plan) for slowdown in (1.2, 1.4, 0)
    )
    unfit = Decision(Conclusion.INCONCLUSIVE, "too few blocks")
    assert decide.fastest([slower, slow, unfit]) is slow
    assert decide.fastest([slower, slow, quick]) is quick
    assert decide.fastest([unfit]) is unfit


def test_rounds_share_the_odds_of_a_wrong_pass() -> None:
    noise = Noise()
    one, three = (
        decide.against_baseline(noise.boot(), [noise.boot()], shared_machine(rounds=rounds))
        for rounds in (1, 3)
    )
    assert three.errors[1] == pytest.approx(one.errors[1] / 3)


def test_slow_machine_is_not_a_slow_server() -> None:
    noise = Noise()
    recorded, now = noise.boot(speed=2000.0), noise.boot(math.log(2), speed=1000.0)
    assert decide.against_baseline(now, [recorded] * 3, PLAN).answer is Conclusion.NO_REGRESSION
    now = [dataclasses.replace(block, speed=2000.0) for block in now]
    assert decide.against_baseline(now, [recorded] * 3, PLAN).answer is Conclusion.REGRESSION


def test_speed_is_ignored_if_a_recorded_boot_lacks_it() -> None:
    noise = Noise()
    for speed in (1000.0, 0.001):
        now = noise.boot(math.log(2), speed=speed)
        assert (
            decide.against_baseline(now, [noise.boot()] * 3, PLAN).answer is Conclusion.REGRESSION
        )


def test_a_warm_up_is_not_counted() -> None:
    noise = Noise()
    cold = [noise.block(1.0) for _ in range(6)]
    now = [*cold, *noise.boot()][: PLAN.baseline.blocks]
    decision = decide.against_baseline(now, [noise.boot()] * 4, PLAN)
    assert decision.answer is Conclusion.NO_REGRESSION
    assert 6 <= decision.void["before the steady state"] <= 9


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"faults": ("requests failed: 500",)}, "requests failed: 500"),
        ({"steal": 0.5}, "the machine's host gave its processor time to other machines"),
        ({"late_s": 9.0}, "the client sent its requests late"),
    ],
)
def test_unfit_blocks_are_inconclusive(spoilt: dict[str, Any], reason: str) -> None:
    noise = Noise()
    now = noise.boot(3.0, **spoilt)
    decision = decide.against_baseline(now, [noise.boot()] * 3, PLAN)
    assert decision.answer is Conclusion.INCONCLUSIVE
    assert f"{len(now)} of {len(now)} blocks are left out, mostly: {reason}" in decision.why
    assert decision.void == {reason: len(now)}
    group = BlockGroup((noise.block(**spoilt), noise.block()), (noise.block(), noise.block()))
    assert decide.unfit_group(group, PLAN.unfit) == reason


def test_boot_beside_other_work_is_not_compared() -> None:
    noise = Noise()
    busy = noise.boot(1.0, others=0.4)
    decision = decide.against_baseline(busy, [noise.boot()] * 3, PLAN)
    assert decision.answer is Conclusion.INCONCLUSIVE
    assert "other processes used the processors" in decision.why
    decision = decide.against_baseline(noise.boot(), [busy] * 3, PLAN)
    assert (decision.answer, decision.why) == (
        Conclusion.INCONCLUSIVE,
        "no recorded boot has enough fit blocks",
    )
    quiet = noise.boot(others=0.08)
    decision = decide.against_baseline(quiet, [noise.boot()] * 3, PLAN)
    assert decision.answer is Conclusion.NO_REGRESSION


def test_other_work_is_unfit_if_it_slows_one_server_only() -> None:
    noise = Noise()
    busy, quiet = (noise.block(others=0.4),) * 2, (noise.block(others=0.0),) * 2
    why = "other processes took more processor time from one server"
    assert decide.unfit_group(BlockGroup(busy, quiet), PLAN.unfit) == why
    assert decide.unfit_group(BlockGroup(busy, busy), PLAN.unfit) == ""
    untold = (noise.block(others=None),) * 2
    assert decide.unfit_group(BlockGroup(busy, untold), PLAN.unfit) == ""


def test_a_block_at_its_limits_is_fit() -> None:
    long = dataclasses.replace(Noise().block(steal=PLAN.unfit.steal), took_s=2.0)
    assert decide.unfit(dataclasses.replace(long, late_s=0.2), PLAN.unfit) == ""
    assert decide.unfit(dataclasses.replace(long, late_s=0.21), PLAN.unfit)


@pytest.mark.parametrize(("fit", "counts"), [(0.5, True), (0.47, False)])
def test_a_boot_counts_if_half_of_its_blocks_are_fit(fit: float, counts: bool) -> None:
    noise = Noise()
    boot = noise.boot()
    fit_count = int(fit * len(boot))
    boot = boot[:fit_count] + [dataclasses.replace(block, steal=0.9) for block in boot[fit_count:]]
    slowdowns, void = decide.boot_slowdowns(boot, PLAN, by_speed=False)
    assert bool(slowdowns) == counts
    assert (
        void["the machine's host gave its processor time to other machines"]
        == len(boot) - fit_count
    )
    group = noise.pair().groups[0]
    groups = [group] * int(fit * GROUPS)
    assert bool(decide.pair_slowdowns(Pair(tuple(groups)), PLAN)[0]) == counts


def test_no_fit_recorded_boot_is_inconclusive() -> None:
    noise = Noise(sd=0.0)
    now = [*noise.boot()[1:], noise.block(steal=0.9)]
    decision = decide.against_baseline(now, [noise.boot(steal=0.9)], PLAN)
    why, stolen = "no recorded boot has enough fit blocks", decision.void
    assert decision == Decision(Conclusion.INCONCLUSIVE, why, void=stolen)
    assert stolen == {"the machine's host gave its processor time to other machines": 1}
    assert decision.sentence(PLAN.odds) == "INCONCLUSIVE: no recorded boot has enough fit blocks"


def test_too_few_blocks_are_reported_with_main_reason() -> None:
    noise = Noise()
    spoilt = [noise.block(late_s=9.0)] * 3 + [noise.block(steal=0.9)] * 2
    decision = decide.against_baseline([*spoilt, noise.block()], [noise.boot()], PLAN)
    assert decision.why == "5 of 6 blocks are left out, mostly: the client sent its requests late"
    decision = decide.against_baseline([noise.block()], [noise.boot()], PLAN)
    assert decision.why == "0 of 1 blocks are left out, mostly: too few were made"


def test_unlike_shares_in_the_cache_are_unfit() -> None:
    noise = Noise()
    cached, uncached, near = ((noise.block(cached=share),) * 2 for share in (0.5, 0.0, 0.02))
    assert decide.unfit_group(BlockGroup(cached, uncached), PLAN.unfit) == (
        "the servers had different shares of the prompts in their caches"
    )
    assert decide.unfit_group(BlockGroup(near, uncached), PLAN.unfit) == ""
    assert decide.unfit_group(BlockGroup(cached, cached), PLAN.unfit) == ""
    untold = (noise.block(),) * 2
    assert decide.unfit_group(BlockGroup(cached, untold), PLAN.unfit) == ""


def test_equal_lanes_pass_and_a_slower_one_fails() -> None:
    assert decide.against_lane(pairs(8), PLAN).answer is Conclusion.NO_REGRESSION
    assert decide.against_lane(pairs(8, 0.08), PLAN).answer is Conclusion.REGRESSION
    assert decide.against_lane(pairs(8, -0.08), PLAN).answer is Conclusion.NO_REGRESSION


def test_two_pairs_decide_only_large_slowdowns() -> None:
    assert decide.against_lane(pairs(2, 0.25), PLAN).answer is Conclusion.REGRESSION
    assert decide.against_lane(pairs(2), PLAN).answer is Conclusion.INCONCLUSIVE
    decision = decide.against_lane(pairs(1, 0.25), PLAN)
    assert decision.answer is Conclusion.INCONCLUSIVE
    assert decision.why == "1 pairs of boots have enough fit blocks, 2 are needed"


def slower_by(tokens: float) -> Callable[[Block], Block]:
    """Return what makes a block slower in its tokens per second, and in nothing else."""
    return lambda block: dataclasses.replace(block, took_s=block.took_s * math.exp(tokens))


def test_fewer_tokens_a_second_are_a_regression_by_themselves() -> None:
    late = slower_by(0.08)
    spoilt = [
        Pair(tuple(BlockGroup((late(g.ours[0]), late(g.ours[1])), g.theirs) for g in pair.groups))
        for pair in pairs(8)
    ]
    decision = decide.against_lane(spoilt, PLAN)
    assert (decision.answer, decision.why) == (Conclusion.REGRESSION, "")


def test_the_warm_up_of_a_pair_is_not_counted() -> None:
    cold, warm = pairs(1, 1.0)[0], pairs(1)[0]
    pair = Pair((*cold.groups[:6], *warm.groups[6:]))
    slowdowns, void = decide.pair_slowdowns(pair, PLAN)
    assert 6 <= void["before the steady state"] <= 9
    assert abs(slowdowns["output_tokens_per_s"]) < 0.05


def test_a_pair_that_is_unfit_does_not_count() -> None:
    noise = Noise(sd=0.0)
    stolen = BlockGroup((noise.block(steal=0.9),) * 2, (noise.block(),) * 2)
    decision = decide.against_lane([noise.pair(), Pair((stolen,) * GROUPS)], PLAN)
    assert decision.answer is Conclusion.INCONCLUSIVE
    assert decision.why == (
        "1 pairs of boots have enough fit blocks, 2 are needed: 40 of 80 groups of four blocks "
        "are left out, mostly: the machine's host gave its processor time to other machines"
    )
    assert decision.void == {"the machine's host gave its processor time to other machines": GROUPS}


def test_slower_first_token_is_reported_beside_throughput() -> None:
    def late(block: Block) -> Block:
        return dataclasses.replace(block, ttft_s=2 * block.ttft_s)

    spoilt = [
        Pair(tuple(BlockGroup((late(g.ours[0]), late(g.ours[1])), g.theirs) for g in pair.groups))
        for pair in pairs(8)
    ]
    decision = decide.against_lane(spoilt, PLAN)
    assert decision.answer is Conclusion.REGRESSION
    assert re.fullmatch(r"ttft_s is surely worse \(\+(9\d|10\d)\.\d%\)", decision.why)


def test_answers_in_one_piece_have_no_inter_token_figure() -> None:
    noise = Noise()
    boots = [[dataclasses.replace(block, itl_s=0.0) for block in noise.boot()] for _ in range(4)]
    assert decide.against_baseline(boots[0], boots[1:], PLAN).answer is Conclusion.NO_REGRESSION


def later_first_tokens(pair: Pair, slower: float) -> Pair:
    """Return a pair in which our first tokens come later, and all else is as it was."""

    def later(block: Block) -> Block:
        return dataclasses.replace(block, ttft_s=block.ttft_s * math.exp(slower))

    ours = [(later(group.ours[0]), later(group.ours[1])) for group in pair.groups]
    return Pair(
        tuple(
            BlockGroup(blocks, group.theirs)
            for blocks, group in zip(ours, pair.groups, strict=True)
        )
    )


def test_each_figure_is_judged_by_its_own_scatter() -> None:
    """On a lane here, the time to the first token varies three times as much as the throughput."""
    pairs = [later_first_tokens(Noise(sd=0.0).pair(0.0), slower) for slower in (0.09, 0.07)]
    assert decide.against_lane(pairs, PLAN).answer is Conclusion.NO_REGRESSION
    sure = PLAN.calibrated(PLAN.against.pair_sd.model_copy(update={"ttft_s": 0.01}), 8)
    decision = decide.against_lane(pairs, sure)
    assert decision.answer is Conclusion.REGRESSION
    assert decision.why == "ttft_s is surely worse (+8.3%)"


def test_a_mean_leaves_out_a_tenth_at_either_end() -> None:
    assert decide.trimmed([90.0, -90.0, 70.0, -80.0, *[1.0, 2.0] * 8]) == 1.5
    assert decide.trimmed([5.0, 1.0]) == 3.0


@pytest.mark.parametrize("secondary", [0.0, 0.2])
@pytest.mark.parametrize("primary", [-0.1, 0.0, 0.02, 0.04, 0.055, 0.06, 0.1, 0.3])
def test_an_alarm_is_clear_enough_exactly_where_a_figure_is_surely_worse(
    primary: float, secondary: float
) -> None:
    """`alarm` is at most 1 if the gate alarms: a fleet applies Holm's method to it."""
    means = {PRIMARY: Mean(primary, 0.02, 12), "ttft_s": Mean(secondary, 0.02, 12)}
    decision = decide.conclude(means, 0.05, (0.01, 0.05), {}, "")
    assert decision.alarm is not None
    surely = means[PRIMARY].above(0.01) > 0 or secondary > 0
    assert (decision.alarm <= 1) == surely
    if decision.answer is Conclusion.REGRESSION:
        assert decision.alarm <= 1
