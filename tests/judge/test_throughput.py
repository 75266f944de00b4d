"""Slower is told from as fast as ever, and doubt from both; what is unfit does not count."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest

from pytest_vllm_gates.facts.throughput import Block, Group, Pair, planned
from pytest_vllm_gates.judge import throughput as judge
from pytest_vllm_gates.judge.throughput import Answer

PLAN = planned()
GROUPS = PLAN.against.groups


class Noise:
    """Blocks of a machine that has its ups and downs."""

    def __init__(self, seed: int = 1, sd: float = 0.05) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - noise
        self._sd = sd

    def block(self, slower: float = 0.0, **more: Any) -> Block:
        took = math.exp(slower + self._chance.gauss(0, self._sd))
        return Block("b", 0.0, took, 1000, 0.1 * took, 0.01 * took, **more)

    def boot(self, slower: float = 0.0, **more: Any) -> list[Block]:
        return [self.block(slower, **more) for _ in range(PLAN.baseline.blocks)]

    def pair(self, slower: float = 0.0) -> Pair:
        return Pair(
            tuple(
                Group((self.block(slower), self.block(slower)), (self.block(), self.block()))
                for _ in range(GROUPS)
            )
        )


def pairs(count: int, slower: float = 0.0, seed: int = 1) -> list[Pair]:
    noise = Noise(seed)
    return [noise.pair(slower) for _ in range(count)]


def test_as_fast_as_recorded_passes() -> None:
    noise = Noise()
    found = judge.against_baseline(noise.boot(), [noise.boot() for _ in range(4)], PLAN)
    assert found.answer is Answer.NO_REGRESSION
    assert "of all gates at most 1.0% are wrong alarms" in found.sentence(PLAN.odds)


def test_slower_than_recorded_is_a_regression_with_how_much() -> None:
    noise = Noise()
    found = judge.against_baseline(noise.boot(math.log(3)), [noise.boot()], PLAN)
    assert found.answer is Answer.REGRESSION
    assert -0.68 < found.as_evidence()["changes"]["output_tokens_per_s"]["change"] < -0.65


def test_one_recorded_boot_is_not_enough_for_a_small_margin() -> None:
    noise = Noise()
    slower = -math.log1p(-PLAN.baseline.margin) * 0.6
    found = judge.against_baseline(noise.boot(slower), [noise.boot()], PLAN)
    assert found.answer is Answer.INCONCLUSIVE


def test_faster_is_no_regression() -> None:
    noise = Noise()
    found = judge.against_baseline(noise.boot(-0.5), [noise.boot()] * 3, PLAN)
    assert found.answer is Answer.NO_REGRESSION


def test_a_machine_that_is_slow_today_is_not_the_server() -> None:
    noise = Noise()
    recorded, now = noise.boot(speed=2000.0), noise.boot(math.log(2), speed=1000.0)
    assert judge.against_baseline(now, [recorded] * 3, PLAN).answer is Answer.NO_REGRESSION
    now = [dataclasses.replace(one, speed=2000.0) for one in now]
    assert judge.against_baseline(now, [recorded] * 3, PLAN).answer is Answer.REGRESSION


def test_a_warm_up_is_not_counted() -> None:
    noise = Noise()
    cold = [noise.block(1.0) for _ in range(6)]
    now = [*cold, *noise.boot()][: PLAN.baseline.blocks]
    found = judge.against_baseline(now, [noise.boot()] * 4, PLAN)
    assert found.answer is Answer.NO_REGRESSION
    assert 6 <= found.void["before the steady state"] <= 9


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        ({"faults": ("requests failed: 500",)}, "requests failed: 500"),
        ({"steal": 0.5}, "the machine's host gave its time to others"),
        ({"late_s": 9.0}, "the client sent its requests late"),
    ],
)
def test_unfit_blocks_decide_nothing(spoilt: dict[str, Any], says: str) -> None:
    noise = Noise()
    now = noise.boot(3.0, **spoilt)
    found = judge.against_baseline(now, [noise.boot()] * 3, PLAN)
    assert found.answer is Answer.INCONCLUSIVE
    assert f"{len(now)} of {len(now)} blocks are left out, mostly: {says}" in found.why
    group = Group((noise.block(**spoilt), noise.block()), (noise.block(), noise.block()))
    assert judge.unfit_group(group, PLAN.unfit) == says


def test_a_boot_beside_other_work_is_not_held_against_one_without() -> None:
    noise = Noise()
    busy = noise.boot(1.0, others=0.4)
    found = judge.against_baseline(busy, [noise.boot()] * 3, PLAN)
    assert found.answer is Answer.INCONCLUSIVE
    assert "other processes took the processors' time" in found.why
    found = judge.against_baseline(noise.boot(), [busy] * 3, PLAN)
    assert (found.answer, found.why) == (
        Answer.INCONCLUSIVE,
        "no recorded boot has enough fit blocks",
    )
    quiet = noise.boot(others=0.04)
    found = judge.against_baseline(quiet, [noise.boot()] * 3, PLAN)
    assert found.answer is Answer.NO_REGRESSION


def test_other_work_beside_two_servers_is_unfit_where_it_took_from_one() -> None:
    noise = Noise()
    busy, quiet = (noise.block(others=0.4),) * 2, (noise.block(others=0.0),) * 2
    why = "other processes took more of the processors' time from one server"
    assert judge.unfit_group(Group(busy, quiet), PLAN.unfit) == why
    assert judge.unfit_group(Group(busy, busy), PLAN.unfit) == ""
    untold = (noise.block(others=None),) * 2
    assert judge.unfit_group(Group(busy, untold), PLAN.unfit) == ""


def test_unlike_shares_in_the_cache_are_unfit() -> None:
    noise = Noise()
    one, other = ((noise.block(cached=share),) * 2 for share in (0.5, 0.0))
    assert "unlike shares of the prompts" in judge.unfit_group(Group(one, other), PLAN.unfit)
    assert judge.unfit_group(Group(one, one), PLAN.unfit) == ""
    untold = (noise.block(),) * 2
    assert judge.unfit_group(Group(one, untold), PLAN.unfit) == ""


def test_lanes_alike_pass_and_a_slower_one_does_not() -> None:
    assert judge.against_lane(pairs(8), PLAN).answer is Answer.NO_REGRESSION
    assert judge.against_lane(pairs(8, 0.08), PLAN).answer is Answer.REGRESSION
    assert judge.against_lane(pairs(8, -0.08), PLAN).answer is Answer.NO_REGRESSION


def test_two_pairs_are_enough_for_what_is_much_slower_and_for_nothing_else() -> None:
    assert judge.against_lane(pairs(2, 0.25), PLAN).answer is Answer.REGRESSION
    assert judge.against_lane(pairs(2), PLAN).answer is Answer.INCONCLUSIVE
    found = judge.against_lane(pairs(1, 0.25), PLAN)
    assert found.answer is Answer.INCONCLUSIVE
    assert "1 pairs of boots with enough fit blocks, 2 are needed" in found.why


def test_a_pair_that_is_unfit_does_not_count() -> None:
    noise = Noise()
    stolen = Group((noise.block(steal=0.9),) * 2, (noise.block(),) * 2)
    found = judge.against_lane([*pairs(1), Pair((stolen,) * GROUPS)], PLAN)
    assert found.answer is Answer.INCONCLUSIVE
    assert "the machine's host gave its time to others" in found.why


def test_a_slower_first_token_is_told_beside_tokens_a_second() -> None:
    def late(block: Block) -> Block:
        return dataclasses.replace(block, ttft_s=2 * block.ttft_s)

    spoilt = [
        Pair(tuple(Group((late(g.ours[0]), late(g.ours[1])), g.theirs) for g in pair.groups))
        for pair in pairs(8)
    ]
    found = judge.against_lane(spoilt, PLAN)
    assert found.answer is Answer.REGRESSION
    assert "ttft_s is surely worse (+" in found.why


def test_answers_in_one_piece_have_no_pace_to_compare() -> None:
    noise = Noise()
    boots = [[dataclasses.replace(one, itl_s=0.0) for one in noise.boot()] for _ in range(4)]
    assert judge.against_baseline(boots[0], boots[1:], PLAN).answer is Answer.NO_REGRESSION


def test_more_pairs_show_smaller_differences() -> None:
    found = judge.smallest_effects(0.02, 8, PLAN)
    assert [*found] == [2, 3, 4, 5, 6, 7, 8]
    assert [*found.values()] == sorted(found.values(), reverse=True)
    assert found[8] < PLAN.against.margin < found[2]
