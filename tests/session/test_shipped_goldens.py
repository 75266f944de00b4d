"""The goldens that ship are of the miniatures that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.checkpoints import resolve
from pytest_vllm_gates.numerics.client import weights_sha256
from pytest_vllm_gates.session.golden_folders import folder, shipped_root
from pytest_vllm_gates.session.run import Subject

WORD = "weights "


def weights_named(golden: Path) -> list[str]:
    with golden.open(encoding="utf-8") as lines:
        return [line.removeprefix(WORD).strip() for line in lines if line.startswith(WORD)]


SUBJECTS = {
    family.name: Subject(family, shipped)
    for family in families.load_all(Path())
    if (shipped := resolve.miniature(family))
}
OF_WEIGHTS = [
    (name, path.name)
    for name, subject in SUBJECTS.items()
    for path in sorted(folder(shipped_root(), subject).glob("*.txt"))
    if weights_named(path)
]


def test_goldens_of_many_miniatures_name_their_weights() -> None:
    assert len({name for name, _ in OF_WEIGHTS}) >= 15


@pytest.mark.parametrize(("name", "golden"), OF_WEIGHTS)
def test_a_golden_is_of_the_weights_that_ship(name: str, golden: str) -> None:
    subject = SUBJECTS[name]
    path = folder(shipped_root(), subject) / golden
    assert weights_named(path) == [weights_sha256(subject.checkpoint)], (
        f"{path.name} of {name} was recorded from other weights: "
        f"pytest --model {name} -m 'numerics or long_context' --update-golden"
    )
