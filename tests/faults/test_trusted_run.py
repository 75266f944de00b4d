"""A server that computes something else than a trusted run is told from one that does not."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from e2e import gates
from e2e.served import subject_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.slow]

NUMERICS = ("-m", "boot or numerics")
TEST = "test_scores_are_those_of_the_trusted_run"


def judged(run: gates.GatesRun) -> dict[str, dict[str, Any]]:
    """Return the tests of the numerics gate by their names."""
    (family,) = run.verdict["families"]
    (gate,) = [gate for gate in family["gates"] if gate["gate"] == "numerics"]
    return {test["test"].partition("[")[0]: test for test in gate["tests"]}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the miniature, of its own name: its goldens are found."""
    _, miniature = subject_of(gates.MODEL)
    return shutil.copytree(miniature.source, tmp_path / "weights" / "miniature")


def test_positions_that_are_off_by_a_hundredth_are_found(tmp_path: Path, checkpoint: Path) -> None:
    served = ("--checkpoint", str(checkpoint), *NUMERICS)
    recorded = gates.run(tmp_path, *served, "--update-golden")
    assert judged(recorded)[TEST]["outcome"] == "PASS", recorded.output
    clean = gates.run(tmp_path, *served)
    assert clean.outcomes()["numerics"] == "PASS", clean.output
    assert judged(clean)[TEST]["outcome"] == "PASS"

    config = checkpoint / "config.json"
    content = json.loads(config.read_text(encoding="utf-8"))
    assert multiply(content, "rope_theta", 0.99) == 1
    config.write_text(json.dumps(content), encoding="utf-8")
    off = gates.run(tmp_path, *served)
    outcomes = {name: test["outcome"] for name, test in judged(off).items()}
    assert outcomes.pop(TEST) == "FAIL", off.output
    assert set(outcomes.values()) == {"PASS"}, "the fixed tolerances see it, too"
    reason = off.reasons("numerics")
    assert "the server computes something else than the trusted run" in reason
    assert "positions, or the KV cache" in reason


def multiply(table: dict[str, Any], name: str, factor: float) -> int:
    """Multiply every number of this name, at any depth; return how many there were."""
    found = 0
    for key, value in table.items():
        if isinstance(value, dict):
            found += multiply(value, name, factor)
        elif key == name:
            table[key] = value * factor
            found += 1
    return found


def test_two_releases_are_equivalent(tmp_path: Path) -> None:
    run = gates.run(tmp_path, "--against", "cpu-previous", *NUMERICS)
    test = judged(run)[TEST]
    assert test["outcome"] == "PASS", run.output
    assert {each["answer"] for each in test["evidence"]["comparisons"]} == {"equivalent"}


def test_precision_that_is_declared_is_not_compared(tmp_path: Path, checkpoint: Path) -> None:
    served = ("--checkpoint", str(checkpoint), *NUMERICS)
    gates.run(tmp_path, *served, "--update-golden")
    golden = next(tmp_path.rglob("trusted-run.txt"))
    text = golden.read_text(encoding="utf-8")
    golden.write_text(text.replace("\nmachine ", "\ndeclared dtype float32\nmachine ", 1))
    run = gates.run(tmp_path, *served)
    test = judged(run)[TEST]
    assert test["outcome"] == "N/A"
    assert "dtype was float32 and is not given" in test["reason"]
