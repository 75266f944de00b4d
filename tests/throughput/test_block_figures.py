"""The figures of blocks are there side by side, and no more of them than are looked at."""

from __future__ import annotations

from pytest_vllm_gates.catalog.plans import Block, BlockGroup, Pair
from pytest_vllm_gates.throughput.blocks import MOST, of_pairs, side_by_side


def block(itl_s: float, *faults: str) -> Block:
    return Block("b", 0.0, 2.0, 100, ttft_s=0.05, itl_s=itl_s, faults=faults)


def test_both_sides_are_told_in_order() -> None:
    group = BlockGroup((block(0.1), block(0.2)), (block(0.3), block(0.4, "broke")))
    assert of_pairs([Pair((group,))]) == {
        "ours": {"output_tokens_per_s": [50.0, 50.0], "ttft_s": [0.05, 0.05], "itl_s": [0.1, 0.2]},
        "theirs": {"output_tokens_per_s": [50.0], "ttft_s": [0.05], "itl_s": [0.3]},
    }


def test_of_many_blocks_some_are_told_evenly() -> None:
    many = [block(float(at)) for at in range(3 * MOST + 1)]
    found = side_by_side(many, [])
    assert len(found["ours"]["itl_s"]) <= MOST
    assert found["ours"]["itl_s"][:3] == [0.0, 4.0, 8.0]
    assert found["theirs"]["itl_s"] == []
