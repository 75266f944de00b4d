"""The bandwidth of an all-reduce, wrong sums, and ranks that fail or hang."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.all_reduce import checks
from pytest_vllm_gates.all_reduce.types import DONE, Rank, Ranks, RankStep, RankSum, WrongElement
from pytest_vllm_gates.server.failure import Diagnosis, Explanation

STEPS = ("the import of torch", "the rendezvous", "the all-reduce of 1 MiB", DONE)
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


def test_finished_ranks_have_no_fault() -> None:
    assert checks.fault(ranks(rank(0), rank(1))) == ""


@given(st.integers(2, 64), st.integers(1, 2**30), st.floats(1e-6, 10))
def test_bus_bandwidth_is_the_load_of_one_link(world: int, size: int, round_s: float) -> None:
    """A ring sends each of n parts of the tensor 2(n - 1) times over one link."""
    each = [rank(number, summed=(RankSum(size, round_s),)) for number in range(world)]
    (bandwidth,) = checks.bandwidths(ranks(*each))
    carried = size / world * 2 * (world - 1)
    assert bandwidth.algorithm == pytest.approx(size / round_s / 1e9)
    assert bandwidth.bus == pytest.approx(carried / round_s / 1e9)


def test_the_time_of_a_size_is_the_ranks_average() -> None:
    each = (rank(0, summed=(RankSum(MIB, 0.001),)), rank(1, summed=(RankSum(MIB, 0.003),)))
    (bandwidth,) = checks.bandwidths(ranks(*each))
    assert bandwidth.round_s == pytest.approx(0.002)


def test_size_missing_on_one_rank_has_no_bandwidth() -> None:
    assert checks.bandwidths(ranks(rank(0), rank(1, 2))) == ()


@given(st.integers(2, 365), st.data())
def test_a_rank_missing_from_the_sum_is_named(world: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, world - 1))
    unit = float(data.draw(st.integers(1, 251)))
    wanted = unit * world * (world + 1) / 2
    wrong = WrongElement(0, wanted - (lost + 1) * unit, wanted, unit, 9)
    result = ranks(rank(0, summed=(RankSum(MIB, 0.001, wrong),)), rank(1), world=world)
    assert checks.fault(result).endswith(f", as if the part of rank {lost} were missing")
    twice = replace(wrong, got=wanted + (lost + 1) * unit)
    result = ranks(rank(0, summed=(RankSum(MIB, 0.001, twice),)), rank(1), world=world)
    assert checks.fault(result).endswith(f", as if the part of rank {lost} were there twice")


def test_wrong_sum_is_reported_with_its_element() -> None:
    wrong = WrongElement(at=17, got=5.5, wanted=54.0, unit=18.0, count=3)
    result = ranks(rank(0), rank(1, summed=(RankSum(MIB, 0.001, wrong),)))
    assert checks.fault(result) == (
        "the all-reduce over 2 ranks sums wrongly: rank 1 has 5.5 in place of 54 at element 17 of "
        "1 MiB (3 elements are wrong)"
    )


def test_missing_rank_is_named_with_its_step() -> None:
    result = ranks(rank(0, 2), rank(1, 1, doing="stopped"), status=None, silent_s=30.0)
    assert checks.fault(result) == (
        "the all-reduce over 2 ranks hangs (after 40 s, 30 s without a step): rank 1 of 2 never "
        "came to the rendezvous: rank 1 has been in the import of torch for 31 s, and is stopped; "
        "rank 0 has been in the rendezvous for 30 s"
    )


def test_ranks_that_never_started_are_named() -> None:
    result = ranks(rank(0), rank(1, 0), rank(2, 0), status=None, silent_s=30.0)
    assert "ranks 1, 2 of 3 never came to done" in checks.fault(result)
    assert "rank 1 did not start; rank 2 did not start; rank 0 has been in done" in checks.fault(
        result
    )


def test_hang_in_one_step_names_what_each_rank_does() -> None:
    result = ranks(rank(0, 3), rank(1, 3, doing="stopped"), status=None, silent_s=29.0)
    assert checks.fault(result).endswith(
        "all ranks of this machine are at the same place: rank 0 has been in the all-reduce of "
        "1 MiB for 29 s; rank 1 has been in the all-reduce of 1 MiB for 29 s, and is stopped"
    )


def test_first_rank_to_end_is_named() -> None:
    result = ranks(
        rank(0, 3, failed="RuntimeError: Connection reset by peer"),
        rank(1, 3),
        status=1,
        ended=((1, -9),),
    )
    assert checks.fault(result) == (
        "the all-reduce over 2 ranks failed: rank 1 of 2 ended in the all-reduce of 1 MiB by "
        "SIGKILL"
    )


@pytest.mark.parametrize(
    ("status", "ending"), [(3, "with exit status 3"), (-9, "by SIGKILL"), (-99, "by signal 99")]
)
def test_silent_rank_is_reported_with_its_status(status: int, ending: str) -> None:
    result = ranks(rank(0, 2), rank(1, 0), status=1, ended=((1, status),))
    assert checks.fault(result).endswith(f"rank 1 of 2 ended before it started {ending}")


def test_failed_rank_is_named_if_no_end_is_known() -> None:
    result = ranks(rank(0, 2), rank(1, 2, failed="RuntimeError: no x"), status=1)
    assert checks.fault(result).endswith("failed: rank 1 of 2: RuntimeError: no x")


def test_last_error_of_a_rank_is_reported() -> None:
    result = ranks(rank(0, 2, failed="RuntimeError: no x"), rank(1, 2), status=1, ended=((0, 1),))
    assert checks.fault(result).endswith("rank 0 of 2 ended in the rendezvous: RuntimeError: no x")


def test_failure_of_torchrun_before_any_rank_is_a_fault() -> None:
    result = ranks(rank(0, 0), rank(1, 0), status=127)
    assert "torchrun ended with exit status 127 before a rank did anything" in checks.fault(result)


def test_success_of_torchrun_without_all_ranks_is_a_fault() -> None:
    result = ranks(rank(0), rank(1, 3))
    assert checks.fault(result) == "torchrun ended well, and rank 1 of 2 did not come to the end"


@given(st.lists(st.integers(0, len(STEPS)), min_size=2, max_size=6), st.sampled_from([0, 1, None]))
def test_only_finished_ranks_pass(steps: list[int], status: int | None) -> None:
    result = ranks(*(rank(number, count) for number, count in enumerate(steps)), status=status)
    finished = status == 0 and all(count == len(STEPS) for count in steps)
    assert (checks.fault(result) == "") == finished


NAMED = Diagnosis("NCCL_IFACE", "t", "nccl", "load", "failure", "likely", "c", ("f",), 1, "q")  # type: ignore[arg-type]


def test_log_explains_a_failure_and_known_hangs() -> None:
    unknown = Explanation(error=("some line",))
    named = Explanation(answer=NAMED)
    ended = ranks(rank(0, 2), rank(1, 2), status=1)
    hung = replace(ended, status=None)
    assert checks.failure(ended, unknown, "next").explanation is unknown
    assert checks.failure(hung, unknown, "next").explanation is None
    assert checks.failure(hung, named, "next").explanation is named
    wrong = RankSum(MIB, 0.001, WrongElement(0, 1.0, 3.0, 1.0, 1))
    summed = ranks(rank(0, summed=(wrong,)), rank(1))
    assert checks.failure(summed, named, "next").explanation is None


def test_interfaces_come_from_nccl_or_else_from_sockets() -> None:
    each = [rank(number, facts={"addresses": ["eth0 10.0.0.1"]}) for number in range(2)]
    assert checks.interfaces(ranks(*each)) == ["eth0 10.0.0.1"]
    links = {"infiniband": "[0]mlx5_0:1/RoCE", "sockets": "[0]eth1:10.0.0.1<0>"}
    assert checks.interfaces(ranks(*each, told=links)) == list(links.values())
