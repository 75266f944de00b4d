"""What a server said, as a sentence shows it."""

from __future__ import annotations

from pytest_vllm_gates.client.completion import SHOWN, Completion


def test_thoughts_and_words_are_shown_together_and_not_too_long() -> None:
    assert Completion("Hm.", "Paris.").shown == repr("Hm.\nParis.")
    assert Completion(content="Paris.").shown == "'Paris.'"
    assert Completion(content="x" * SHOWN).shown == repr("x" * SHOWN)
    assert Completion(content="x" * (SHOWN + 1)).shown == repr("x" * (SHOWN - 1) + "…")


def test_what_came_in_place_of_an_answer_is_shown() -> None:
    assert (
        Completion(content="Par", error="the connection broke off").shown
        == "the connection broke off"
    )
