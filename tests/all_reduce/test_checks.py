"""What an all-reduce between ranks comes to: the bandwidth, the wrong sum, the rank that hangs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.all_reduce import checks as judge, types as facts
from pytest_vllm_gates.all_reduce.types import Rank, Ranks, RankStep, RankSum, WrongElement
from pytest_vllm_gates.server.failure import Diagnosis, Explanation

STEPS = ("the import of torch", "the rendezvous", "the all-reduce of 1 MiB", facts.DONE)
BEGAN_S = 1000.0
MIB = 2**20


def rank(number: int, steps: int = len(STEPS), **more: object) -> Rank:
    """Return a rank that took its first steps, one a second."""
    made = Rank(
        number,
        tuple(RankStep(at, name, BEGAN_S + at) for at, name in enumerate(STEPS[:steps])),
        (RankSum(MIB, 0.001),) if steps > 2 else (),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def ranks(*each: Rank, **more: object) -> Ranks:
    made = Ranks(
        backend="gloo",
        world=len(each),
        ranks=each,
        log=Path("log"),
        command=("torchrun",),
        took_s=40.0,
        status=0,
        ended_s=BEGAN_S + 31.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def test_nothing_is_wrong_with_ranks_that_came_to_the_end() -> None:
    assert judge.fault(ranks(rank(0), rank(1))) == ""


@given(st.integers(2, 64), st.integers(1, 2**30), st.floats(1e-6, 10))
def test_the_bus_bandwidth_is_what_each_link_has_to_carry(
    world: int, size: int, round_s: float
) -> None:
    """A ring sends each of n parts of the tensor 2(n - 1) times over one link."""
    each = [rank(number, summed=(RankSum(size, round_s),)) for number in range(world)]
    (bandwidth,) = judge.bandwidths(ranks(*each))
    carried = size / world * 2 * (world - 1)
    assert bandwidth.algorithm == pytest.approx(size / round_s / 1e9)
    assert bandwidth.bus == pytest.approx(carried / round_s / 1e9)


def test_the_time_of_a_size_is_the_ranks_average() -> None:
    each = (rank(0, summed=(RankSum(MIB, 0.001),)), rank(1, summed=(RankSum(MIB, 0.003),)))
    (bandwidth,) = judge.bandwidths(ranks(*each))
    assert bandwidth.round_s == pytest.approx(0.002)


def test_a_size_that_one_rank_did_not_come_through_has_no_bandwidth() -> None:
    assert judge.bandwidths(ranks(rank(0), rank(1, 2))) == ()


@given(st.integers(2, 365), st.data())
def test_a_rank_missing_from_the_sum_is_named(world: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, world - 1))
    unit = float(data.draw(st.integers(1, 251)))
    wanted = unit * world * (world + 1) / 2
    wrong = WrongElement(0, wanted - (lost + 1) * unit, wanted, unit, 9)
    seen = ranks(rank(0, summed=(RankSum(MIB, 0.001, wrong),)), rank(1), world=world)
    assert judge.fault(seen).endswith(f", as if the part of rank {lost} were missing")
    twice = replace(wrong, got=wanted + (lost + 1) * unit)
    seen = ranks(rank(0, summed=(RankSum(MIB, 0.001, twice),)), rank(1), world=world)
    assert judge.fault(seen).endswith(f", as if the part of rank {lost} were there twice")


def test_a_wrong_sum_is_told_with_the_element() -> None:
    wrong = WrongElement(at=17, got=5.5, wanted=54.0, unit=18.0, count=3)
    seen = ranks(rank(0), rank(1, summed=(RankSum(MIB, 0.001, wrong),)))
    assert judge.fault(seen) == (
        "the all-reduce over 2 ranks sums wrongly: rank 1 has 5.5 in place of 54 at element 17 of "
        "1 MiB (3 elements are wrong)"
    )


def test_a_rank_that_never_comes_is_named_with_where_it_is() -> None:
    seen = ranks(rank(0, 2), rank(1, 1, doing="stopped"), status=None, silent_s=30.0)
    assert judge.fault(seen) == (
        "the all-reduce over 2 ranks hangs (after 40 s, 30 s without a step): rank 1 of 2 never "
        "came to the rendezvous: rank 1 has been in the import of torch for 31 s, and is stopped; "
        "rank 0 has been in the rendezvous for 30 s"
    )


def test_ranks_that_never_started_are_named() -> None:
    seen = ranks(rank(0), rank(1, 0), rank(2, 0), status=None, silent_s=30.0)
    assert "ranks 1, 2 of 3 never came to done" in judge.fault(seen)
    assert "rank 1 did not start; rank 2 did not start; rank 0 has been in done" in judge.fault(
        seen
    )


def test_ranks_that_hang_in_one_place_are_told_with_what_each_is_doing() -> None:
    seen = ranks(rank(0, 3), rank(1, 3, doing="stopped"), status=None, silent_s=29.0)
    assert judge.fault(seen).endswith(
        "all ranks of this machine are at the same place: rank 0 has been in the all-reduce of "
        "1 MiB for 29 s; rank 1 has been in the all-reduce of 1 MiB for 29 s, and is stopped"
    )


def test_of_ranks_that_end_the_first_is_named() -> None:
    seen = ranks(
        rank(0, 3, failed="RuntimeError: Connection reset by peer"),
        rank(1, 3),
        status=1,
        ended=((1, -9),),
    )
    assert judge.fault(seen) == (
        "the all-reduce over 2 ranks failed: rank 1 of 2 ended in the all-reduce of 1 MiB by "
        "SIGKILL"
    )


@pytest.mark.parametrize(
    ("status", "how"), [(3, "with exit status 3"), (-9, "by SIGKILL"), (-99, "by signal 99")]
)
def test_a_rank_that_says_nothing_is_told_by_its_status(status: int, how: str) -> None:
    seen = ranks(rank(0, 2), rank(1, 0), status=1, ended=((1, status),))
    assert judge.fault(seen).endswith(f"rank 1 of 2 ended before it started {how}")


def test_a_rank_that_failed_is_told_where_none_is_known_to_have_ended() -> None:
    seen = ranks(rank(0, 2), rank(1, 2, failed="RuntimeError: no x"), status=1)
    assert judge.fault(seen).endswith("failed: rank 1 of 2: RuntimeError: no x")


def test_what_a_rank_said_at_its_end_is_told() -> None:
    seen = ranks(rank(0, 2, failed="RuntimeError: no x"), rank(1, 2), status=1, ended=((0, 1),))
    assert judge.fault(seen).endswith("rank 0 of 2 ended in the rendezvous: RuntimeError: no x")


def test_a_torchrun_that_fails_before_any_rank_is_no_success() -> None:
    seen = ranks(rank(0, 0), rank(1, 0), status=127)
    assert "torchrun ended with exit status 127 before a rank did anything" in judge.fault(seen)


def test_a_torchrun_that_ends_well_without_its_ranks_is_no_success() -> None:
    seen = ranks(rank(0), rank(1, 3))
    assert judge.fault(seen) == "torchrun ended well, and rank 1 of 2 did not come to the end"


@given(st.lists(st.integers(0, len(STEPS)), min_size=2, max_size=6), st.sampled_from([0, 1, None]))
def test_nothing_that_did_not_come_to_the_end_passes(steps: list[int], status: int | None) -> None:
    seen = ranks(*(rank(number, count) for number, count in enumerate(steps)), status=status)
    whole = status == 0 and all(count == len(STEPS) for count in steps)
    assert (judge.fault(seen) == "") == whole


NAMED = Diagnosis("NCCL_IFACE", "t", "nccl", "load", "failure", "likely", "c", ("f",), 1, "q")  # type: ignore[arg-type]


def test_a_log_explains_what_ended_and_names_a_hang_where_it_can() -> None:
    unknown = Explanation(error=("some line",))
    named = Explanation(answer=NAMED)
    ended = ranks(rank(0, 2), rank(1, 2), status=1)
    hung = replace(ended, status=None)
    assert judge.failure(ended, unknown, "next").explanation is unknown
    assert judge.failure(hung, unknown, "next").explanation is None
    assert judge.failure(hung, named, "next").explanation is named
    wrong = RankSum(MIB, 0.001, WrongElement(0, 1.0, 3.0, 1.0, 1))
    summed = ranks(rank(0, summed=(wrong,)), rank(1))
    assert judge.failure(summed, named, "next").explanation is None


def test_interfaces_are_those_nccl_names_and_else_those_of_the_sockets() -> None:
    each = [rank(number, facts={"addresses": ["eth0 10.0.0.1"]}) for number in range(2)]
    assert judge.interfaces(ranks(*each)) == ["eth0 10.0.0.1"]
    told = {"infiniband": "[0]mlx5_0:1/RoCE", "sockets": "[0]eth1:10.0.0.1<0>"}
    assert judge.interfaces(ranks(*each, told=told)) == list(told.values())
