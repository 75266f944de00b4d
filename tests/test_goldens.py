"""Goldens are laid out for readers, and damaged goldens are refused."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from texts import texts

from pytest_vllm_gates.goldens import (
    CorruptGolden,
    Refused,
    Rendering,
    changed_parts,
    conversation_golden,
    disagreement,
    first_difference,
    lock_golden,
    prefix_lost,
    prompt_golden,
    settings_golden,
    visible,
)
from pytest_vllm_gates.session.golden_files import read_golden

if TYPE_CHECKING:
    from pathlib import Path

PIECES = ("<|im_start|>", "user", "\n", "Hi", " there", "<|im_end|>", "\n", "<think>")


def rendering(*pieces: str) -> Rendering:
    return Rendering("".join(pieces), tuple(range(100, 100 + len(pieces))), pieces)


WHOLE = prompt_golden("a greeting", rendering(*PIECES))


def test_prompt_is_laid_out_in_lines_with_its_tokens() -> None:
    assert prompt_golden("a greeting", rendering(*PIECES)).splitlines() == [
        "golden 1: prompt, 8 tokens: a greeting",
        "",
        "| <|im_start|>user↵",
        "  100 101 102",
        "| Hi there<|im_end|>↵",
        "  103 104 105 106",
        "| <think>",
        "  107",
        "",
        "end of golden",
    ]


def test_a_token_with_several_line_breaks_ends_one_line() -> None:
    lines = prompt_golden("x", rendering("a", "\n\n", "b")).splitlines()
    assert lines[2:6] == ["| a↵↵", "  100 101", "| b", "  102"]


@pytest.mark.parametrize(
    ("text", "visible_text"),
    [
        ("a\nb", "a↵b"),
        ("a\tb", "a␉b"),
        ("a\r\n", "a␍↵"),
        ("\x00\x1b", "␀␛"),
        ("a\u00a0b", "a⟨U+00A0⟩b"),
        ("a\u3000b", "a⟨U+3000⟩b"),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ("\ufeffa", "⟨U+FEFF⟩a"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\u2028b", "a⟨U+2028⟩b"),
        ("a\x7fb", "a⟨U+007F⟩b"),
        ("a\x85b", "a⟨U+0085⟩b"),
        ("👩‍🚀", "👩‍🚀"),
        ("naïve 日本 שלום", "naïve 日本 שלום"),
    ],
)
def test_invisible_characters_are_shown(text: str, visible_text: str) -> None:
    assert visible(text) == visible_text


@given(texts)
def test_nothing_in_a_prompt_breaks_the_layout(text: str) -> None:
    lines = prompt_golden("x", rendering(text, "\n")).splitlines()
    assert len(lines) == 6
    assert lines[3] == "  100 101"


def test_a_lock_names_the_hash_of_every_part_in_order() -> None:
    assert lock_golden("parts", {"b": b"2", "a": b"1"}).splitlines() == [
        "golden 1: lock: parts",
        "",
        "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b  a",
        "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35  b",
        "",
        "end of golden",
    ]


def test_settings_are_laid_out_by_name() -> None:
    assert settings_golden("greedy", {"top_p": 0.9, "stop": ["a"]}).splitlines() == [
        "golden 1: settings: greedy",
        "",
        'stop = ["a"]',
        "top_p = 0.9",
        "",
        "end of golden",
    ]


def test_parts_that_changed_came_or_went_are_named() -> None:
    recorded = lock_golden("the  parts", {"same": b"1", "its  own": b"1", "gone": b"1", "a": b"1"})
    now = lock_golden("parts", {"same": b"1", "its  own": b"2", "new": b"1", "a": b"1"})
    assert changed_parts(recorded, now) == ["gone", "its  own", "new"]
    assert changed_parts(recorded, recorded) == []


def sha256(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_middle_of_a_very_long_prompt_is_its_hash() -> None:
    ends = [f"{number}\n" for number in range(10_000)]
    all_lines = [line for end in ends for line in (f"| {visible(end)}", "  7")]
    lines = prompt_golden("x", Rendering("", (7,) * len(ends), tuple(ends))).splitlines()
    middle = all_lines[38:-40]
    assert lines == [
        "golden 1: prompt, 10000 tokens: x",
        "",
        *all_lines[:38],
        f"  … {len(middle)} lines, sha256 {sha256(*middle)}",
        *all_lines[-40:],
        "",
        "end of golden",
    ]


@pytest.mark.parametrize(("tokens", "lines"), [(39, 80), (40, 81)])
def test_wide_lines_are_shortened_to_their_beginnings(tokens: int, lines: int) -> None:
    wide = "x" * 1997 + "\n"
    wider = "x" * 1998 + "\n"
    pieces = (wide, *[wider] * (tokens - 1))
    golden = prompt_golden("x", Rendering("", tuple(range(tokens)), pieces)).splitlines()
    assert len(golden) - 2 == lines
    assert golden[2] == f"| {'x' * 1997}↵"
    line = f"| {'x' * 1998}↵"
    assert golden[4] == f"{line[:2000]} … 2001 characters, sha256 {sha256(line)}"


def test_prompt_just_below_the_limit_is_laid_out_whole() -> None:
    head = len("golden 1: prompt, 1 tokens: x") + len("  5")
    text = "y" * (60_000 - head - len("| "))
    assert prompt_golden("x", Rendering("", (5,), (text,))).splitlines()[2] == f"| {text}"
    assert "sha256" in prompt_golden("x", Rendering("", (5,), (f"{text}y",)))


def test_golden_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(WHOLE.encode())
    assert read_golden(path) == WHOLE


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with 'nothing', not with 'golden 1'"),
        (b"\n\n", "starts with 'nothing'"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (WHOLE.encode()[:-9], "has no last line 'end of golden': it was cut short"),
        (WHOLE.encode()[:40], "it was cut short"),
        (WHOLE.encode() + b"more\n", "it was cut short"),
        (b"golden 2" + WHOLE.encode()[8:], "starts with 'golden 2: prompt"),
        (b"golden 10" + WHOLE.encode()[8:], "'golden 10: prompt"),
        (b"golden 1.1" + WHOLE.encode()[8:], "another version of pytest-vllm-gates wrote it"),
        (b"\xef\xbb\xbf" + WHOLE.encode(), "starts with"),
        (
            WHOLE.replace("| <think>", "<<<<<<< HEAD\n| a\n=======\n| b\n>>>>>>> theirs").encode(),
            "contains the conflict markers of an unresolved merge",
        ),
        (b"<<<<<<< HEAD\n" + WHOLE.encode(), "the conflict markers of an unresolved merge"),
    ],
    ids=[
        "empty", "blank", "not text", "cut", "cut early", "longer", "version", "version 10",
        "version 1.1", "bom", "merge", "merge at the head",
    ],
)  # fmt: skip
def test_damaged_golden_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    with pytest.raises(CorruptGolden) as caught:
        read_golden(path)
    assert str(caught.value).startswith(f"{path} ")
    assert message in str(caught.value)


def test_unreadable_golden_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptGolden, match=r"cannot be read: Is a directory"):
        read_golden(tmp_path)


def test_prompt_with_conflict_markers_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(prompt_golden("x", rendering("<<<<<<< HEAD", "\n", ">>>>>>> a")))
    assert read_golden(path)


@given(st.integers(0, len(WHOLE.encode()) - 1))
def test_a_golden_cut_anywhere_is_refused(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.txt"
    path.write_bytes(WHOLE.encode()[:length])
    with pytest.raises(CorruptGolden):
        read_golden(path)


def test_the_same_tokens_have_no_difference() -> None:
    assert first_difference(rendering("a", "b"), [100, 101]) is None
    assert first_difference(rendering(), []) is None


@pytest.mark.parametrize(
    ("token_ids", "message"),
    [
        (
            [100, 101, 102, 7, 104, 105, 106, 107],
            "from token 3 on, after '<|im_start|>user↵': expected 'Hi there<|im_end|>↵<think>' "
            "(ids [103, 104, 105, 106, 107]), found ids [7, 104, 105, 106, 107]; "
            "8 tokens expected, 8 found",
        ),
        ([100, 101], "from token 2 on, after '<|im_start|>user': expected '↵Hi there"),
        ([100, 101], "found ids none; 8 tokens expected, 2 found"),
        ([*range(100, 108), 9], "expected 'the end' (ids []), found ids [9]"),
        ([9, *range(100, 108)], "from token 0 on, after ''"),
    ],
    ids=["one", "shorter", "shorter, counted", "longer", "one before"],
)
def test_first_difference_names_the_token_and_its_text(token_ids: list[int], message: str) -> None:
    assert message in str(first_difference(rendering(*PIECES), token_ids))


REFUSED = Refused("no such turn")


@pytest.mark.parametrize(
    ("expected", "served", "message"),
    [
        (rendering("a"), [100], None),
        (REFUSED, REFUSED, None),
        (
            rendering("a"),
            [7],
            "the server's prompt differs from the prompt of the checkpoint's template: fr",
        ),
        (REFUSED, [7], "the template refuses this conversation (no such turn) and the server rend"),
        (
            rendering("a"),
            REFUSED,
            "the server refuses a conversation that the checkpoint's template acc",
        ),
    ],
    ids=["same", "both refuse", "other tokens", "rendered", "refused"],
)
def test_disagreement_in_prompts_and_in_refusals(
    expected: Rendering | Refused, served: list[int] | Refused, message: str | None
) -> None:
    problem = disagreement(expected, served)
    assert problem is None if message is None else message in str(problem)


def test_prompt_with_another_prefix_is_reported() -> None:
    before = rendering("a", "b", "c")
    assert prefix_lost(before, rendering("a", "b", "c", "d")) is None
    assert prefix_lost(before, Rendering("", (100, 101, 7, 8), ())) is None, "the last may merge"
    problem = prefix_lost(before, Rendering("", (100, 7, 102, 103), ()))
    assert problem == (
        "added turns change the earlier tokens: from token 1 on, after 'a': expected 'b' "
        "(ids [101]), found ids [7]; 2 tokens expected, 2 found\nThe server recomputes every turn "
        "from there on, because the prefix cache does not contain these tokens."
    )
    assert prefix_lost(REFUSED, before) is prefix_lost(before, REFUSED) is None


def test_refusal_is_a_golden_too() -> None:
    assert conversation_golden("x", REFUSED) == (
        "golden 1: refusal: x\n\nno such turn\n\nend of golden\n"
    )
    assert conversation_golden("x", rendering("a")).startswith("golden 1: prompt, 1 tokens: x")
