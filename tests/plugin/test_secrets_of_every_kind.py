"""Secrets of some seventy kinds, known to nobody, are in none of a run's outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from redaction.secrets_made import Planted, made, seeded

from plugin.test_secrets import files_in
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.process import guard

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

OWN_GATE = """
import json, logging, pathlib, sys
import pytest
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive

TEXTS = json.loads((pathlib.Path(__file__).parent / "planted.json").read_text())
ALL = "\\n".join(TEXTS)


def test_fails(server, chat, conversation, evidence, record_property):
    answer = chat.whole(conversation, 10)
    evidence["answer"] = answer.as_evidence()
    evidence["texts"] = TEXTS
    evidence["nested"] = {"says": {"texts": ALL}}
    record_property("mine", ALL)
    print(ALL)
    print(ALL, file=sys.stderr)
    for text in TEXTS:
        logging.getLogger("x").warning("logged %s", text)
    assert ALL == "", f"seen: {ALL}"


def test_raises(server):
    logging.getLogger("x").exception("it ends") if False else None
    try:
        raise ValueError(ALL)
    except ValueError:
        logging.getLogger("x").exception("with its traceback")
        raise


def test_cannot_decide(server):
    raise Inconclusive(ALL)


def test_finds(chat, conversation, checking):
    answer = chat.whole(conversation, 10)
    case = Case("a case", {}, conversation.body(chat._family))
    checking([Finding(case, f"content is {ALL}")], [case], ALL)
"""
CRASH = """
import json, pathlib, pytest

@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish():
    raise RuntimeError("\\n".join(json.loads(pathlib.Path("mine/planted.json").read_text())))
"""
LANE = """
[serve]
served_model_name = "fake"

[serve.kv_transfer_config]
kv_connector = "fake"

[serve.kv_transfer_config.kv_connector_extra_config]
api_key = {value}
region = "here"
inner = {{ DB_PASS = {value} }}
"""


@pytest.fixture
def secrets() -> list[Planted]:
    return list(made(seeded(2026)))


def leaks(secrets: list[Planted], places: dict[str, str]) -> list[tuple[str, str]]:
    """Return the kinds that are left, and where."""
    return [
        (secret.kind, place)
        for place, text in places.items()
        for secret in secrets
        if any(part in text for part in secret.parts)
    ]


def outputs(project: Project, result: pytest.RunResult) -> dict[str, str]:
    files = {
        str(path): data.decode("utf-8", "replace")
        for path, data in files_in(project.path)
        if path.name != "planted.json"
    }
    return {**files, "stdout": result.stdout.str(), "stderr": result.stderr.str()}


def planted(project: Project, secrets: list[Planted]) -> None:
    project.write("mine/test_own.py", OWN_GATE)
    project.write("mine/planted.json", json.dumps([secret.text for secret in secrets]))


def run(project: Project) -> pytest.RunResult:
    return project.pytester.runpytest_inprocess(
        "--model", "qwen3.5", "--lane", "fake", "--gates-report", "out", "--junitxml",
        "out/junit.xml", "--log-file", "out/log.txt", "-o", "junit_logging=all", "-l", "-v", "-rA",
        "-W", "default", "mine",
    )  # fmt: skip


def test_run_has_none_in_its_outputs(project: Project, secrets: list[Planted]) -> None:
    project.lane("echoes")
    planted(project, secrets)
    result = run(project)
    assert result.ret == 1
    places = outputs(project, result)
    assert leaks(secrets, places) == []
    for name in ("verdict.json", "report.html", "junit.xml", "log.txt", "incident.json"):
        assert any(path.endswith(name) and "[redacted]" in text for path, text in places.items())


def test_crash_of_pytest_has_none(project: Project, secrets: list[Planted]) -> None:
    project.lane("echoes")
    planted(project, secrets)
    project.write("conftest.py", CRASH)
    result = run(project)
    assert "INTERNALERROR" in result.stdout.str() + result.stderr.str()
    assert leaks(secrets, outputs(project, result)) == []


def test_servers_log_has_none(secrets: list[Planted], tmp_path: Path) -> None:
    text = "".join(f"(EngineCore pid=7) {line}\n" for s in secrets for line in s.text.split("\n"))
    (tmp_path / "said").write_text(text)
    log = tmp_path / "server.log"
    with log.open("wb") as file:
        # The guard ends its command when this pipe closes: it stays open until then.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, "5", "-1", "cat", str(tmp_path / "said")],
            stdin=subprocess.PIPE, stdout=file,
        )  # fmt: skip
        assert process.wait(60) == 0
        assert process.stdin
        process.stdin.close()
    assert log.read_text().count("\n") == text.count("\n")
    assert leaks(secrets, {"log": log.read_text()}) == []


@pytest.mark.parametrize("json_", [[], pytest.param(["--json"], marks=pytest.mark.slow)])
def test_explain_has_none(
    secrets: list[Planted], tmp_path: Path, capsys: pytest.CaptureFixture[str], json_: list[str]
) -> None:
    for secret in secrets:
        text = secret.text.replace("\n", "\nERROR 11-24 10:00:00 [core.py:9] ")
        (tmp_path / "log").write_text(
            f"ERROR 11-24 10:00:00 [core.py:9] EngineCore failed to start.\n"
            f"ERROR 11-24 10:00:00 [core.py:9] Traceback (most recent call last):\n"
            f"ERROR 11-24 10:00:00 [core.py:9] ValueError: no such thing: {text}\n"
        )
        main(["explain", str(tmp_path / "log"), *json_])
        shown = capsys.readouterr()
        assert leaks([secret], {"stdout": shown.out, "stderr": shown.err}) == []


@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_difference_of_lanes_has_none(
    project: Project, capsys: pytest.CaptureFixture[str], json_: list[str]
) -> None:
    for name, value in (("one", "letmein-9-one"), ("two", "letmein-9-two")):
        start = f'command = ["env", "MY_COOKIE={value}", "vllm", "serve"]'
        variables = f'SERVICE_TOKENS = "{value}"\nGATEWAY_COOKIE = "{value}"'
        lane = LANE.format(value=json.dumps(value))
        project.write(
            f"lanes/{name}.toml", f'title = "{name}"\n{start}\n[env]\n{variables}\n{lane}'
        )
    assert main(["lane", "diff", "one", "two", *json_]) == 0
    shown = capsys.readouterr().out
    assert "letmein-9" not in shown
    assert "kv-transfer-config" in shown.replace("_", "-") and "[redacted]" in shown
    assert "SERVICE_TOKENS" in shown and ("here" in shown or not json_)
