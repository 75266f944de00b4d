"""Messages, help, docstrings and comments are written plainly, folder by folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from prose import rules, sentences

PACKAGE = Path(__file__).parents[2] / "pytest_vllm_gates"
FOLDERS = sorted(
    {path.parent for suffix in (".py", ".toml") for path in PACKAGE.rglob(f"*{suffix}")}
)
MOST_BANNED, MOST_RELATIVE = 0.01, 0.02
FEW = 100
"""A folder of fewer sentences may have one of a kind."""
FOR_MODELS = {"data/robustness", "miniatures", "prompts"}
"""Folders with texts that are sent to models, and ids that recorded cases have."""


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix in (".py", ".toml")]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_folder_has_few_hard_sentences(folder: Path) -> None:
    if any(str(folder.relative_to(PACKAGE)).startswith(name) for name in FOR_MODELS):
        pytest.skip("its texts are sent to models")
    found = [(path.name, one) for path in files(folder) for one in sentences.of(path)]
    one = 1 / max(len(found), 1) if len(found) < FEW else 0.0
    shares = rules.shares(sentence for _, sentence in found)
    hard = [
        f"{name}:{line}: {text}"
        for name, (line, text) in found
        if rules.banned(text) or rules.relative(text)
    ]
    assert shares.banned <= max(MOST_BANNED, one), hard
    assert shares.relative <= max(MOST_RELATIVE, one), hard


def test_sentences_of_code_are_docstrings_comments_and_messages(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(
        '"""The first text. The second text."""\n# A comment of\n# two lines.\n'
        'raise ValueError(f"the value {x} is not right")\nX = "a|b c d e (?:x)"\n'
    )
    assert sorted(text for _, text in sentences.of(file)) == [
        "A comment of two lines.",
        "The first text.",
        "The second text.",
        "the value X is not right",
    ]
