"""`vllm-gates explain` and `vllm-gates signatures`, as they are typed."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.diagnosis import signature
from pytest_vllm_gates.report import checks as report_checks

CAUSE = "(EngineCore pid=1) ValueError: No available memory for the cache blocks."
PAGE = Path(__file__).parents[2] / "docs" / "signatures.md"
OWN = """
title = "Our own"
[[signatures]]
id = "OURS"
title = "the proxy is down"
phase = "client"
patterns = ['our proxy is (?P<state>\\w+)']
[signatures.text]
cause = "It is {state}."
fixes = ["start it"]
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def log(text: str) -> str:
    Path("server.log").write_text(text)
    return "server.log"


def test_text_has_name_cause_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", log(f"start\n{CAUSE}\nend\n")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "KV_NONE (certain): nothing is left for the KV cache"
    assert lines[1].startswith("  why:   ")
    assert lines[2].startswith("  next:  ")
    assert "  seen:  line 2, by EngineCore" in lines


def test_json_has_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", log(CAUSE), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["id"], document["answer"]["class"], document["answer"]["line"]) == (
        "KV_NONE", "kv_cache", 1,
    )  # fmt: skip


def test_a_log_may_be_piped_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CAUSE.encode())))
    assert main(["explain", "-"]) == 0
    assert capsys.readouterr().out.startswith("KV_NONE")


def test_an_unknown_failure_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", log("ValueError: nobody has seen this\n")]) == 1
    output = capsys.readouterr().out
    assert output.startswith("UNKNOWN: no signature knows this failure")
    assert "    ValueError: nobody has seen this" in output


def test_a_healthy_log_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", log("INFO 11-20 10:00:00 [a.py:1] all is well\n")]) == 0
    assert capsys.readouterr().out == (
        "the log reports no error\n  none of its lines reports a start or a request (1 read)\n"
    )


def test_exit_status_explains_a_silent_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", log("all is well\n"), "--exit-status", "-9"]) == 0
    assert capsys.readouterr().out.startswith("HOST_OOM")
    assert main(["explain", log("the last words\n"), "--exit-status", "3"]) == 1
    assert "    the last words" in capsys.readouterr().out


def test_a_log_that_cannot_be_read_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "none.log"]) == 2
    assert "none.log: cannot be read: No such file or directory" in capsys.readouterr().err


def test_here_considers_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", log(CAUSE), "--here"]) == 0
    assert main(["explain", log(CAUSE), "--lane", "cpu"]) == 0
    assert main(["explain", log(CAUSE), "--lane", "none"]) == 2
    assert "unknown lane 'none'" in capsys.readouterr().err


def test_a_projects_own_signatures_count(capsys: pytest.CaptureFixture[str]) -> None:
    Path("signatures").mkdir()
    Path("signatures/ours.toml").write_text(OWN)
    assert main(["explain", log("our proxy is down\n")]) == 0
    assert capsys.readouterr().out.startswith(
        "OURS (certain): the proxy is down\n  why:   It is down."
    )
    assert main(["signatures", "--class", "ours"]) == 0
    assert "OURS" in capsys.readouterr().out
    Path("signatures/ours.toml").write_text(OWN.replace("phase", "phaze"))
    assert main(["explain", "server.log"]) == 2
    assert "ours.toml:6: unknown key 'signatures.0.phaze'; did you mean 'phase'?" in (
        capsys.readouterr().err
    )


def test_the_signatures_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signatures"]) == 0
    output = capsys.readouterr().out
    classes = signature.load_all()
    assert all(f"  {identifier} " in output for each in classes for identifier in each.ids)
    assert output.endswith(f" signatures in {len(classes)} classes\n")
    assert main(["signatures", "--class", "KV cache", "--json"]) == 0
    (listed_class,) = json.loads(capsys.readouterr().out)
    assert listed_class["name"] == "kv_cache"
    assert listed_class["signatures"][0]["patterns"]


def test_unknown_class_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signatures", "--class", "kv_cash"]) == 2
    assert "did you mean 'kv_cache'?" in capsys.readouterr().err


def test_signatures_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == report_checks.signature_page(signature.load_all()), (
        "write it anew: vllm-gates signatures --markdown > docs/signatures.md"
    )
