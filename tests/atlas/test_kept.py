"""Runs are read from the reports of `vllm-gates atlas` or of plain pytest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from atlas.made_runs import entry, verdict
from pytest_vllm_gates.atlas import kept
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def keep(atlas: Path, release: str, name: str, document: dict[str, Any]) -> Path:
    folder = kept.folder(atlas, release, name)
    folder.mkdir(parents=True)
    (folder / "verdict.json").write_text(json.dumps(document))
    return folder


def test_runs_are_sorted_by_release_and_other_folders_are_ignored(tmp_path: Path) -> None:
    keep(tmp_path, "0.31.0", "glm", verdict(family="glm"))
    keep(tmp_path, "0.31.0", "qwen3.5", verdict())
    keep(tmp_path, "0.4.0", "glm/flash", verdict(family="glm/flash", vllm="0.4.0"))
    (tmp_path / "lanes" / "x").mkdir(parents=True)
    (tmp_path / "lanes" / "x" / "verdict.json").write_text("{")
    found = [(run.release, run.family) for run in kept.load(tmp_path)]
    assert found == [("0.4.0", "glm/flash"), ("0.31.0", "glm"), ("0.31.0", "qwen3.5")]
    assert kept.load(tmp_path / "none") == []


def test_incidents_beside_a_verdict_are_read(tmp_path: Path) -> None:
    reason = "wrong (in 2 of 3 cases)\na:\n  x is gone\nb: y is gone\n"
    folder = keep(tmp_path, "0.31.0", "qwen3.5", verdict(entry("test_a[qwen3.5]", "FAIL", reason)))
    (run,) = kept.load(tmp_path)
    assert not run.tests[0].complete
    incident = folder / "incidents" / "one" / "incident.json"
    incident.parent.mkdir(parents=True)
    incident.write_text(
        json.dumps(
            {"family": "qwen3.5", "gate": "tools", "test": "test_a[qwen3.5]",
             "findings": [{"case": "a", "says": "x is gone"}, {"case": "b", "says": "y is gone"}]}
        )
    )  # fmt: skip
    (run,) = kept.load(tmp_path)
    assert run.tests[0].complete


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"lane": {"versions": {}}, "families": [1]}'])
def test_verdict_that_cannot_be_read_names_the_command_that_makes_it(
    tmp_path: Path, text: str
) -> None:
    folder = keep(tmp_path, "0.31.0", "glm", {})
    (folder / "verdict.json").write_text(text)
    with pytest.raises(UserError, match=r"atlas --releases 0\.31\.0 --model glm --again"):
        kept.load(tmp_path)
