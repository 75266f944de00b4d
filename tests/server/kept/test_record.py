"""A kept server's record, and the differences that make it unusable for a run."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from pytest_vllm_gates.server.kept.record import (
    Host,
    KeptRecord,
    ProcessId,
    differences,
    shortened,
    span,
)
from pytest_vllm_gates.server.types import BootTimes


def test_only_values_without_secrets_are_shown() -> None:
    kept = {
        "flag max_model_len": "4096", "flag api_key": "a-hash", "variable HF_HOME": "one-hash",
        "lane": "cpu", "same": "x", "package torch": "2.13.0", "plugin": "", "variable A": "b",
    }  # fmt: skip
    requested = {
        "flag max_model_len": "8192", "flag api_key": "another", "variable HF_HOME": "another",
        "lane": "cpu", "same": "x", "flag trust_remote_code": "", "plugin": "abc", "variable C": "",
    }  # fmt: skip
    assert list(differences(kept, requested)) == [
        "flag api_key",
        "flag max_model_len (kept 4096, requested 8192)",
        "flag trust_remote_code (kept none, requested set)",
        "package torch (kept 2.13.0, requested none)",
        "plugin (kept set, requested abc)",
        "variable A (removed)",
        "variable C (added)",
        "variable HF_HOME",
    ]


def test_name_is_matched_from_its_beginning() -> None:
    kept, requested = (dict.fromkeys(("file lane", "lanes"), value) for value in "ab")
    assert list(differences(kept, requested)) == ["file lane", "lanes"]


def test_three_differences_are_shown_and_others_counted() -> None:
    assert shortened([]) == ""
    assert shortened(["a", "b", "c"]) == "a, b, c"
    assert shortened(["a", "b", "c", "d"]) == "a, b, c and 1 more"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (9e4, "25 h")],
)
def test_duration_is_readable(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_record_restores_its_boot_times() -> None:
    times = BootTimes(health_s=9.0, first_chat_s=12.0, first_token_s=None)
    process = ProcessId(pid=1, started=2)
    record = KeptRecord(
        name="one", family="qwen3.5", lane="cpu", checkpoint="miniature", model="alias",
        base_url="http://127.0.0.1:1/v1", renderer=False, server=process, keeper=process, tree=(),
        host=Host(name="here", boot="b", pids="p"), booted="2026-11-20T10:00:00+00:00",
        times=asdict(times),
        evidence={}, inventory={}, fingerprint={},
    )  # fmt: skip
    assert record.boot_times == times
