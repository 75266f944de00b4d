"""Two running servers: an equal one passes, and no loss that a boot may have is a regression."""

from __future__ import annotations

import dataclasses
import math
import statistics

import pytest

from pytest_vllm_gates.catalog.plans import Pair
from pytest_vllm_gates.throughput.decision import PRIMARY, Conclusion
from pytest_vllm_gates.throughput.running import RunningDecision, against_server, batch_mean
from throughput.boot_noise import PLAN, Noise

LEAST, MOST = PLAN.running.rounds
GROUPS = PLAN.running.groups
BOOT_SD = PLAN.against.pair_sd.of(PRIMARY)


QUIET, NOISY = 0.02, 0.05


def decided(
    slower: float = 0.0, rounds: int = LEAST, seed: int = 1, sd: float = QUIET
) -> RunningDecision:
    noise = Noise(seed, sd)
    return against_server([noise.pair(slower, GROUPS) for _ in range(rounds)], PLAN)


def test_equal_servers_pass_and_the_unmeasured_scatter_is_reported() -> None:
    so_far = decided()
    assert (so_far.decision.answer, so_far.settled) == (Conclusion.NO_REGRESSION, True)
    sentence = so_far.decision.sentence(PLAN.odds)
    assert "this compares two running servers, each one boot" in sentence
    assert f"by about {BOOT_SD:.1%} (sd), which is not measured here" in sentence
    assert "not measured here" in so_far.decision.as_evidence()["why"]


def test_much_slower_server_is_a_regression() -> None:
    so_far = decided(math.log(1.5))
    assert (so_far.decision.answer, so_far.settled) == (Conclusion.REGRESSION, True)
    assert "not measured here" in so_far.decision.why


@pytest.mark.parametrize("rounds", [2 * LEAST, MOST])
def test_loss_that_a_boot_may_have_is_inconclusive(rounds: int) -> None:
    """Pairs of boots would find it: they measure what boots differ by."""
    so_far = decided(3.3 * BOOT_SD, rounds)
    assert so_far.decision.answer is Conclusion.INCONCLUSIVE
    assert "but not by more than two boots of one bundle differ" in so_far.decision.why
    assert so_far.settled, "more blocks hardly change it"


@pytest.mark.parametrize("loss", [PLAN.against.margin, 4.3 * BOOT_SD])
def test_loss_near_either_answer_is_measured_on(loss: float) -> None:
    assert not decided(loss).settled


def test_equal_servers_on_a_noisy_machine_pass_later() -> None:
    first, last = (decided(rounds=rounds, sd=NOISY) for rounds in (LEAST, MOST))
    assert (first.decision.answer, first.settled) == (Conclusion.INCONCLUSIVE, False)
    assert last.decision.answer is Conclusion.NO_REGRESSION


def test_faster_server_passes() -> None:
    assert decided(-0.3).decision.answer is Conclusion.NO_REGRESSION


def test_one_round_is_too_few() -> None:
    so_far = decided(rounds=LEAST - 1)
    assert (so_far.decision.answer, so_far.settled) == (Conclusion.INCONCLUSIVE, False)
    assert "are needed" in so_far.decision.why


def test_slower_first_token_alone_is_a_regression() -> None:
    noise = Noise()

    def late(pair: Pair) -> Pair:
        return Pair(
            tuple(
                dataclasses.replace(
                    group,
                    ours=(
                        dataclasses.replace(group.ours[0], ttft_s=3 * group.ours[0].ttft_s),
                        dataclasses.replace(group.ours[1], ttft_s=3 * group.ours[1].ttft_s),
                    ),
                )
                for group in pair.groups
            )
        )

    so_far = against_server([late(noise.pair(groups=GROUPS)) for _ in range(LEAST)], PLAN)
    assert so_far.decision.answer is Conclusion.REGRESSION
    assert "ttft_s is surely worse" in so_far.decision.why


def test_blocks_beside_others_requests_are_left_out() -> None:
    noise = Noise()
    spoilt = [
        Pair(
            tuple(
                dataclasses.replace(
                    group, theirs=(noise.block(faults=("others",)), noise.block(faults=("others",)))
                )
                for group in noise.pair(groups=GROUPS).groups
            )
        )
        for _ in range(LEAST)
    ]
    so_far = against_server(spoilt, PLAN)
    assert so_far.decision.answer is Conclusion.INCONCLUSIVE
    assert f"{LEAST * GROUPS} of {LEAST * GROUPS} groups of four blocks" in so_far.decision.why
    assert so_far.decision.void == {"others": LEAST * GROUPS}


def test_no_false_alarm_and_no_false_pass_in_many_comparisons() -> None:
    """Servers that differ as boots of one bundle do, and servers slower by twice the margin."""
    chance = Noise(11, 1.0)
    answers = [
        decided(BOOT_SD * math.log(chance.block().took_s), seed=seed).decision.answer
        for seed in range(20)
    ]
    assert Conclusion.REGRESSION not in answers
    assert answers.count(Conclusion.NO_REGRESSION) > 15
    slower = [decided(2 * PLAN.against.margin, seed=seed).decision.answer for seed in range(8)]
    assert Conclusion.NO_REGRESSION not in slower


def test_batch_mean_is_wider_where_blocks_hang_together() -> None:
    alternating = [(-1.0) ** number for number in range(80)]
    drifting = [number / 40 - 1 for number in range(80)]
    assert batch_mean(alternating).error < 0.01
    naive = statistics.stdev(drifting) / math.sqrt(80)
    assert batch_mean(drifting).error > 2 * naive
    assert batch_mean([0.0] * 4).error > 0
