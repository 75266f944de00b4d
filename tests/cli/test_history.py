"""`vllm-gates history`, as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from runs import entry

from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.history import store as history_store
from pytest_vllm_gates.history.types import FIGURES, FILE
from pytest_vllm_gates.report.history import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

BOTH = {"qwen3.5": "miniature", "glm": "miniature"}


@pytest.fixture
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with three runs; it is the current folder."""
    monkeypatch.chdir(tmp_path)
    everything = {"boot_s": 60.0, "output_tokens_per_s": 896.12, "ttft_s": 0.0589, "itl_s": 0.00746,
                  "kv_tokens": 1315779.0, "goodput_per_s": 6.011}  # fmt: skip
    for history_entry in (
        entry(0),
        entry(1, promotion="HOLD", reasons=("glm: load did not run", "more"), checkpoints=BOTH),
        entry(2, against="stable", figures={"qwen3.5": everything}),
    ):
        history_store.append(tmp_path / FILE, history_entry)
    return tmp_path


@pytest.mark.usefixtures("remembered")
def test_text_is_a_table_with_trends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "when (UTC) promotion lane vLLM family boot s tokens/s TTFT ms ITL ms KV tokens goodput/s",
        "2026-11-01 08:37 PROMOTE cpu 0.32.0 qwen3.5 50.0 - 58.9 - - -",
        "2026-11-02 08:37 HOLD cpu 0.32.0 qwen3.5 51.0 - 58.9 - - -",
        "2026-11-02 08:37 HOLD cpu 0.32.0 glm - - - - - -",
        "glm: load did not run (and 1 more)",
        "2026-11-03 08:37 PROMOTE cpu against stable 0.32.0 qwen3.5 60.0 896.1 58.9 7.46 "
        "1,315,779 6.01",
        "",
        "the last run against the median of earlier runs on the same lane and machine:",
        "qwen3.5 (miniature) on cpu, AMD EPYC, 2 cores",
        "boot s 60.0 +18.8% ▁▂█ 3 runs",
        "TTFT ms 58.9 +0.0% ▅▅▅ 3 runs",
    ]
    head, first, *_, last = lines[0], lines[1], lines[5]
    assert head.index("family") == first.index("qwen3.5") == last.index("qwen3.5")
    assert head.index(" boot s") + 7 == first.index(" 50.0") + 5 == last.index(" 60.0") + 5


@pytest.mark.usefixtures("remembered")
def test_table_of_one_family_and_the_last_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--model", "GLM"]) == 0
    output = capsys.readouterr().out
    assert "qwen3.5" not in output
    assert len(output.splitlines()) == 3
    assert main(["history", "--limit", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.usefixtures("remembered")
def test_json_has_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--json", "--limit", "2"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [run["against"] for run in runs] == [None, "stable"]
    assert runs[0]["reasons"] == ["glm: load did not run", "more"]
    assert runs[1]["figures"]["qwen3.5"]["kv_tokens"] == 1315779


def test_another_file_can_be_named(remembered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (remembered / FILE).rename(remembered / "kept.sqlite")
    assert main(["history", "--history", "kept.sqlite", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "gml"], "error: unknown family in this history 'gml'; did you mean 'glm'?"),
        (["--history", "none.sqlite"], "error: no history in none.sqlite\n"),
    ],
)
@pytest.mark.usefixtures("remembered")
def test_invalid_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["history", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_limit_must_be_a_number_of_runs(limit: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["history", "--limit", limit])
    assert ended.value.code == 2


def test_every_figure_has_its_column() -> None:
    assert tuple(COLUMNS) == FIGURES
