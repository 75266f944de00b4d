"""The difference of two prompts, token by token, is complete, bounded and names the changes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from pytest_vllm_gates.goldens import Rendering, prompt_golden, refusal_golden
from pytest_vllm_gates.prompts.layout import (
    MOST_COMPARED,
    MOST_IN_A_RUN,
    MOST_RUNS,
    SHOWN_AROUND,
    golden_diff,
    recorded_ids,
    token_diff,
)

PROMPTS = st.lists(st.integers(0, 5), max_size=60)


def diff(expected: list[int], actual: list[int]) -> dict[str, Any]:
    return token_diff(expected, actual, ("recorded", "now"), lambda number: f"t{number}\n")


def kinds(expected: list[int], actual: list[int]) -> list[tuple[str, Any]]:
    return [
        (run["kind"], run.get("token_ids", run.get("count")))
        for run in diff(expected, actual)["runs"]
    ]


def test_differences_are_between_common_tokens() -> None:
    assert kinds([1, 2, 3, 4], [1, 9, 9, 4]) == [
        ("same", [1]), ("removed", [2, 3]), ("added", [9, 9]), ("same", [4]),
    ]  # fmt: skip
    assert kinds([1, 2], [1, 2, 3]) == [("same", [1, 2]), ("added", [3])]
    assert kinds([1, 2], []) == [("removed", [1, 2])]


def test_texts_make_white_space_visible() -> None:
    differences = diff([1], [2])
    assert [run["texts"] for run in differences["runs"]] == [["t1↵"], ["t2↵"]]
    assert (differences["of"], differences["tokens"]) == (["recorded", "now"], [1, 1])


def test_tokens_far_from_a_difference_are_counted() -> None:
    before, between = list(range(100, 200)), list(range(1000, 1100))
    runs = kinds([*before, 1, *between, 2], [*before, *between])
    assert runs == [
        ("skipped", 100 - SHOWN_AROUND), ("same", before[-SHOWN_AROUND:]), ("removed", [1]),
        ("same", between[:SHOWN_AROUND]), ("skipped", 100 - 2 * SHOWN_AROUND),
        ("same", between[-SHOWN_AROUND:]), ("removed", [2]),
    ]  # fmt: skip


def test_common_ends_are_shown_next_to_the_difference() -> None:
    tail = list(range(100, 200))
    assert kinds([1, *tail], [2, *tail]) == [
        ("removed", [1]), ("added", [2]), ("same", tail[:SHOWN_AROUND]),
        ("skipped", 100 - SHOWN_AROUND),
    ]  # fmt: skip


def test_few_common_tokens_are_shown_in_full() -> None:
    few = list(range(2 * SHOWN_AROUND))
    assert kinds([*few, 99], few) == [("same", few), ("removed", [99])]
    more = [*few, 98]
    assert kinds([*more, 99], more) == [
        ("skipped", SHOWN_AROUND + 1), ("same", more[-SHOWN_AROUND:]), ("removed", [99]),
    ]  # fmt: skip


def test_left_out_tokens_are_counted() -> None:
    assert diff([1], [2]).keys() == {"of", "tokens", "runs"}
    (removed,) = diff([1] * MOST_IN_A_RUN, [])["runs"]
    assert removed.keys() == {"kind", "token_ids", "texts"}
    (removed,) = diff([1] * (MOST_IN_A_RUN + 3), [])["runs"]
    assert (len(removed["token_ids"]), removed["left_out"]) == (MOST_IN_A_RUN, 3)
    assert diff([1] * (MOST_COMPARED + 3), [])["not_compared"] == 3
    assert diff([], [1] * (MOST_COMPARED + 4))["not_compared"] == 4
    assert "not_compared" not in diff([1] * MOST_COMPARED, [2] * MOST_COMPARED)
    many = diff(list(range(100)), [number for each in range(100) for number in (each, 1000)])
    assert (len(many["runs"]), many["runs_left_out"]) == (MOST_RUNS, 200 - MOST_RUNS)


@given(PROMPTS, PROMPTS)
def test_no_token_is_lost(expected: list[int], actual: list[int]) -> None:
    runs = diff(expected, actual)["runs"]
    for prompt, side in ((expected, "added"), (actual, "removed")):
        ids = [run["token_ids"] for run in runs if run["kind"] not in (side, "skipped")]
        skipped = sum(run["count"] for run in runs if run["kind"] == "skipped")
        assert sum(map(len, ids)) + skipped == len(prompt)
        if not skipped:
            assert [token for run_ids in ids for token in run_ids] == prompt


def test_the_diff_of_unlike_prompts_is_small_and_quick() -> None:
    differences = diff(
        [number % 7 for number in range(50_000)], [number % 11 for number in range(60_000)]
    )
    assert len(differences["runs"]) == MOST_RUNS
    assert differences["not_compared"] > 100_000
    assert len(json.dumps(differences)) < 100_000


def test_token_ids_are_read_from_a_golden() -> None:
    rendering = Rendering("a\n7 8\nb", (5, 6, 7, 8), ("a\n", "7", " 8\n", "b"))
    recorded = prompt_golden("1 2 3", rendering)
    assert recorded_ids(recorded) == [5, 6, 7, 8]
    now = prompt_golden("1 2 3", Rendering("a\n7", (5, 6), ("a\n", "7")))
    differences = golden_diff(recorded, now, str)
    assert differences
    assert differences["of"] == ["recorded", "now"]
    assert [run["kind"] for run in differences["runs"]] == ["same", "removed"]
    assert (golden_diff(recorded, recorded, str), golden_diff(None, now, str)) == (None, None)


def test_a_golden_without_every_token_is_not_compared() -> None:
    many = 40_000
    long = prompt_golden("x", Rendering("a\n" * many, (1,) * many, ("a\n",) * many))
    assert recorded_ids(long) is None
    assert (
        recorded_ids(prompt_golden("x", Rendering("a" * many, (1,) * many, ("a",) * many))) is None
    )
    refused = refusal_golden("x", "no system message")
    assert golden_diff(long, refused, str) is None
