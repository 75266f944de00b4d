"""Escape sequences from files reach no terminal as such."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.redaction.stream import CleanText
from pytest_vllm_gates.report.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OWNED = "\x1b]0;owned\x07\x1b[2J\x1b[8m"


def test_commands_print_escapes_of_a_log_visibly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vllm.log").write_text(f"ValueError: \x08\x9b2J\u202e{OWNED} broke\n")
    main(["explain", "vllm.log"])
    captured = capsys.readouterr()
    assert "broke" in captured.out
    assert not {"\x1b", "\x08", "\x9b", "\u202e"} & {*captured.out, *captured.err}


def test_error_of_a_file_is_printed_visibly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", f"{OWNED}.log"]) == 2
    assert "␛]0;owned␇␛[2J␛[8m.log: cannot be read: No such file" in capsys.readouterr().err


def test_commands_may_clear_their_own_line() -> None:
    file = io.StringIO()
    with CleanText(file, Redactor()) as out:
        out.write("\r\x1b[Kwaiting\x1b[2J\n")
    assert file.getvalue() == "\r\x1b[Kwaiting␛[2J\n"


def test_progress_shows_a_logs_last_line_visibly() -> None:
    written: list[str] = []
    Progress(written.append, terminal=True)(f"booting: {OWNED}x\ny")
    assert written == ["\r\x1b[2Kbooting: ␛]0;owned␇␛[2J␛[8mx y"]


def test_pytest_shows_escapes_of_failures_visibly(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_x():\n    print('\\x1b]0;owned\\x07')\n    assert False, '\\x1b[2J\\x9b'\n"
    )
    result = pytester.runpytest_subprocess(
        "--model", "qwen3.5", "--base-url", "http://127.0.0.1:9/v1", "-k", "test_x",
        "test_pytest_shows_escapes_of_failures_visibly.py",
    )  # fmt: skip
    text = result.stdout.str()
    assert "owned" in text
    assert "\x1b" not in text
    assert "\x9b" not in text
