"""The programs that read verdicts: clean hours, clean runs, and what a verdict costs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent.parent / "benchmarks"
MIB = 2**20


def verdict(outcome: str = "PASS", *, grows_mib: float = 0.0) -> dict[str, Any]:
    """Return what the programs read of a verdict; 30 blocks of two minutes each."""
    memory = [round((900 + grows_mib * block) * MIB) for block in range(30)]
    endured = {
        "requests": 1920,
        "canaries": 240,
        "took_s": 3600.0,
        "ended_early": "",
        "memory_bytes": memory,
    }
    test = {"test": "test_a", "outcome": outcome, "reason": "", "evidence": {"endurance": endured}}
    gate = {"gate": "endurance", "outcome": outcome, "duration_s": 12.0, "tests": [test]}
    boot = {"gate": "boot", "outcome": "PASS", "duration_s": 31.0, "tests": []}
    return {
        "created": "2026-11-28T01:00:00+00:00",
        "promotion": "REJECT" if outcome == "FAIL" else "HOLD",
        "reasons": ["why"],
        "lane": {"name": "cpu", "versions": {"vllm": "0.32.0"}},
        "machine": {"cpu": "a CPU", "cores": 2},
        "families": [
            {
                "name": "qwen3.5",
                "boot": {"ok": True, "times": {"first_chat_s": 30.0}},
                "gates": [boot, gate],
            }
        ],
    }


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs import each other, as Python does for a program's own folder."""
    monkeypatch.syspath_prepend(str(PROGRAMS))


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(PROGRAMS / program), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("programs")
def test_a_run_of_an_hour_is_one_line() -> None:
    import clean_hours  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    (line,) = clean_hours.read(verdict(grows_mib=1.0))
    assert (line["family"], line["lane"], line["minutes"]) == ("qwen3.5", "cpu", 60.0)
    assert (line["requests"], line["canaries"], line["findings"]) == (1920, 240, 0)
    assert line["memory_mib_per_h"] == pytest.approx([30.0, 30.0, 30.0])
    table = clean_hours.table([line, {**line, "findings": 2, "memory_mib_per_h": None}])
    assert "+30.0 [+30.0, +30.0]" in table
    assert "not seen" in table
    assert table.endswith("2.0 hours, 3,840 requests, 2 findings in 2 runs")


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("outcome", "findings", "undecided"), [("PASS", 0, 0), ("FAIL", 1, 0), ("INCONCLUSIVE", 0, 1)]
)
def test_a_failed_check_is_a_finding_and_an_undecided_one_is_none(
    outcome: str, findings: int, undecided: int
) -> None:
    import clean_hours  # noqa: PLC0415

    (line,) = clean_hours.read(verdict(outcome))
    assert (line["findings"], line["undecided"]) == (findings, undecided)


def test_a_folder_without_a_verdict_is_named(tmp_path: Path) -> None:
    ran = run("clean_hours.py", "--add", str(tmp_path))
    assert ran.returncode == 1
    assert f"{tmp_path}/verdict.json: no such file" in ran.stderr


@pytest.mark.parametrize(("outcome", "alarms"), [("PASS", 0), ("FAIL", 1)])
def test_reports_of_clean_runs_are_added_and_counted(
    outcome: str, alarms: int, tmp_path: Path
) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps(verdict(outcome)))
    log = tmp_path / "log.jsonl"
    ran = run("false_alarms.py", "add", str(tmp_path), str(tmp_path), "--log", str(log))
    assert ran.returncode == alarms, ran.stderr
    assert f"{2 * alarms} false alarms in 2 runs" in ran.stdout
    line = json.loads(log.read_text().splitlines()[0])
    assert line["failed"] == ["endurance"] * alarms
    assert (line["lane"], line["at"]) == ("cpu", "2026-11-28T01:00:00+00:00")


@pytest.mark.usefixtures("programs")
def test_the_boot_gate_costs_what_it_takes_besides_the_boot() -> None:
    import verdict_cost  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    boot_s, gates_s = verdict_cost.read(verdict())
    assert boot_s == 30.0
    assert gates_s == {"boot": 1.0, "endurance": 12.0}
    other = verdict()
    other["families"][0]["gates"][0]["duration_s"] = 0.5
    other["families"][0]["gates"][1]["duration_s"] = 42.0
    assert verdict_cost.read(other)[1] == {"boot": 0.5, "endurance": 12.0}
    other["families"][0]["gates"][0] |= {"gate": "adapters", "duration_s": 31.0}
    assert verdict_cost.read(other)[1] == {"adapters": 1.0, "endurance": 42.0}
    for gate in other["families"][0]["gates"]:
        gate["duration_s"] = 5.0
    with pytest.raises(SystemExit, match=r"no gate took the 30\.0 s of the boot"):
        verdict_cost.read(other)
    cost = verdict_cost.Cost(50.0, boot_s, gates_s, 0, 100.0)
    assert cost.rest_s == 7.0
    assert "besides boot and gates 7.0 s, unknown requests" in verdict_cost.line("whole", cost)
    way = verdict_cost.in_the_way(dataclasses.replace(cost, others_cpu_s=40.0), 45.0)
    assert "5.0 s too long; endurance (12.0 s), boot (1.0 s) wait for the server" in way
    assert "for 80% of the run" in way


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("functional_s", "whole_s", "memory_mb", "kept"),
    [(70.0, 100.0, 249.0, True), (70.1, 99.0, 100.0, False), (60.0, 100.1, 100.0, False),
     (60.0, 90.0, 250.0, False)],
)  # fmt: skip
def test_each_limit_counts(
    functional_s: float, whole_s: float, memory_mb: float, kept: bool
) -> None:
    import verdict_cost  # noqa: PLC0415

    assert verdict_cost.summary(25.0, functional_s, whole_s, memory_mb)[1] is kept


@pytest.mark.usefixtures("programs")
def test_a_run_with_pictures_has_two_limits() -> None:
    import pictures  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    sentence, kept = pictures.summary(20.0, 80.0, 40.0)
    assert kept
    assert "= 4.00 (at most 4)" in sentence
    assert not pictures.summary(20.0, 80.2, 8.0)[1]
    assert not pictures.summary(20.0, 60.0, 40.1)[1]


@pytest.mark.usefixtures("programs")
def test_a_process_is_followed_to_its_end() -> None:
    import overhead  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    seen = overhead.Seen()
    code = "import time; end = time.process_time() + 0.3; held = b'x' * 50_000_000\n"
    code += "while time.process_time() < end: pass\ntime.sleep(0.2)"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        overhead.follow(process.pid, seen)
    assert 0.25 < seen.cpu_s < 5
    assert seen.peak_mb > 45
