"""What a server said, as a sentence shows it."""

from __future__ import annotations

from pytest_vllm_gates.client.completion import SHOWN, Completion


def test_reasoning_and_content_are_shown_shortened() -> None:
    assert Completion("Hm.", "Paris.").shown == repr("Hm.\nParis.")
    assert Completion(content="Paris.").shown == "'Paris.'"
    assert Completion(content="x" * SHOWN).shown == repr("x" * SHOWN)
    assert Completion(content="x" * (SHOWN + 1)).shown == repr("x" * (SHOWN - 1) + "…")


def test_the_error_is_shown_in_place_of_an_answer() -> None:
    assert (
        Completion(content="Par", error="the connection broke off").shown
        == "the connection broke off"
    )
