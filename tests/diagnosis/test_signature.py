"""Signatures are read strictly, and a project's signatures replace shipped ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.diagnosis import signature
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

HEAD = 'title = "a class"\n'
ONE = """
[[signatures]]
id = "ONE"
title = "one"
phase = "load"
patterns = ['''it is (?P<size>\\d+) bytes short''']
[signatures.text]
cause = "It lacks {size} bytes."
fixes = ["give it {size}"]
"""
PATTERNS = "patterns = ['''it is (?P<size>\\d+) bytes short''']"
TWO = ONE.replace("ONE", "TWO").replace("phase", "phase ")


def write_signatures(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / "signatures" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def complaint(folder: Path, text: str) -> str:
    write_signatures(folder, text)
    with pytest.raises(UserError) as caught:
        signature.load_all(folder)
    return str(caught.value)


def ids(classes: tuple[signature.SignatureClass, ...]) -> list[str]:
    return [name for class_ in classes for name in class_.ids]


def test_shipped_signatures_load_and_have_unique_ids() -> None:
    shipped = ids(signature.load_all())
    assert len(shipped) == len(set(shipped)) > 50
    assert {"OOM_LOAD", "OOM_WARMUP", "OOM_RUN", "KV_NONE", "PORT", "GATED"} <= set(shipped)


def test_a_project_adds_its_signatures(tmp_path: Path) -> None:
    write_signatures(tmp_path, HEAD + ONE)
    classes = signature.load_all(tmp_path)
    assert ids(classes) == [*ids(signature.load_all()), "ONE"]
    assert classes[-1].name == "mine"


def test_a_projects_signature_replaces_the_shipped_one_of_its_id(tmp_path: Path) -> None:
    write_signatures(tmp_path, HEAD + ONE.replace("ONE", "KV_NONE"))
    signatures = [
        loaded
        for class_ in signature.load_all(tmp_path)
        for loaded in class_.signatures
        if loaded.id == "KV_NONE"
    ]
    assert [loaded.title for loaded in signatures] == ["one"]


def test_duplicate_id_is_an_error(tmp_path: Path) -> None:
    assert "the id 'ONE' is also in" in complaint(tmp_path, HEAD + ONE + ONE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE.replace("phase", "phaze"), "mine.toml:6: unknown key 'signatures.0.phaze'"),
        (ONE.replace("title", "titel"), "did you mean 'title'?"),
        (ONE + TWO + "casue = 1\n", "mine.toml:20: unknown key 'signatures.1.text.casue'"),
        (ONE.replace('"load"', '"later"'), "mine.toml:6: signatures.0.phase"),
        (ONE.replace("ONE", "one"), "an id is written in capitals"),
        (ONE.replace("(?P<size>", "(?P<size"), "is not a regular expression"),
        (ONE.replace("it is (?P<size>\\d+) bytes short", "(?P<size>\\d+)"), "no literal piece"),
        (ONE.replace("it is (?P<size>\\d+) bytes short", "(?P<size>ab)?"), "an empty line"),
        (ONE.replace("{size} bytes", "{siez} bytes"), "no pattern captures {siez}; did you mean"),
        (ONE.replace("short'''", "short''', '''too short'''"), "add cause_plain"),
        (ONE.replace("fixes", 'cause_plain = "{size} is short."\nfixes'),
         "cause_plain is for lines without captures"),
        (
            ONE.replace("short'''", "short''', '''too short'''").replace(
                "fixes", 'cause_plain = "It is short."\nfixes'
            ),
            "every fix needs a capture that not every pattern has",
        ),
        (ONE.replace("[signatures.text]", "[signatures.when]\nnear = ['[']\n[signatures.text]"),
         "is not a regular expression"),
        (ONE + '[signatures.machine]\nsupports = ["no_gpus"]\n', "did you mean 'no_gpu'?"),
        (ONE.replace(PATTERNS, "").replace("{size}", "9"),
         "has neither patterns nor an exit status"),
    ],
)  # fmt: skip
def test_invalid_signature_is_reported_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in complaint(tmp_path, HEAD + text)


def test_braces_that_name_no_capture_stay(tmp_path: Path) -> None:
    write_signatures(
        tmp_path, HEAD + ONE.replace("give it {size}", """pass '{\\"a\\": {\\"b\\": 1}}'""")
    )
    assert ids(signature.load_all(tmp_path))[-1] == "ONE"


def test_an_exit_status_alone_may_be_a_signature(tmp_path: Path) -> None:
    by_status = ONE.replace(PATTERNS, "")
    by_status = by_status.replace("{size}", "9").replace(
        "[signatures.text]", "[signatures.when]\nexit_status = [-9]\n[signatures.text]"
    )
    write_signatures(tmp_path, HEAD + by_status)
    assert ids(signature.load_all(tmp_path))[-1] == "ONE"
