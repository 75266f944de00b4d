"""Recorded times are read as they were written, and refused where they make no sense."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.warmup import record
from warmup.test_types import boot, times

if TYPE_CHECKING:
    from pathlib import Path


def test_times_come_back(tmp_path: Path) -> None:
    path = record.default_file(tmp_path, times())
    assert path == tmp_path / "warmup" / "qwen3.5-miniature-cpu.json"
    record.write(path, times(boot(30.0)))
    assert record.read(path).boots == [boot(30.0)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "other"}, "it is not pytest-vllm-gates/warmup in version 1"),
        ({"boots": []}, "it has no boot"),
        ({"boots": 3}, "'boots'"),
        ({"family": None}, "'family'"),
    ],
)
def test_invalid_times_are_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps({**record.document(times(boot(30.0))), **change}))
    with pytest.raises(UserError, match=says) as raised:
        record.read(path)
    assert "--record" in str(raised.value)


@pytest.mark.parametrize(
    "change", [{"total_s": -1}, {"health_s": "NaN"}, {"caches": "hot"}, {"phases_s": {"a": -1}}]
)
def test_a_boot_that_makes_no_sense_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    document = record.document(times(boot(30.0)))
    document["boots"] = [{**document["boots"][0], **change}]
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="boot"):
        record.read(path)
