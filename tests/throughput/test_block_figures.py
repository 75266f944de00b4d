"""The figures of blocks are returned side by side, thinned where there are many."""

from __future__ import annotations

from pytest_vllm_gates.catalog.plans import Block, BlockGroup, Pair
from pytest_vllm_gates.throughput.blocks import MOST, of_pairs, side_by_side


def block(itl_s: float, *faults: str) -> Block:
    return Block("b", 0.0, 2.0, 100, ttft_s=0.05, itl_s=itl_s, faults=faults)


def test_figures_of_both_sides_are_in_order() -> None:
    group = BlockGroup((block(0.1), block(0.2)), (block(0.3), block(0.4, "broke")))
    assert of_pairs([Pair((group,))]) == {
        "ours": {"output_tokens_per_s": [50.0, 50.0], "ttft_s": [0.05, 0.05], "itl_s": [0.1, 0.2]},
        "theirs": {"output_tokens_per_s": [50.0], "ttft_s": [0.05], "itl_s": [0.3]},
    }


def test_many_blocks_are_thinned_evenly() -> None:
    many = [block(float(at)) for at in range(3 * MOST + 1)]
    figures = side_by_side(many, [])
    assert len(figures["ours"]["itl_s"]) <= MOST
    assert figures["ours"]["itl_s"][:3] == [0.0, 4.0, 8.0]
    assert figures["theirs"]["itl_s"] == []
