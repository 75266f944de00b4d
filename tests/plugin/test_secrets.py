"""Secrets planted in every channel are in none of a run's outputs."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from pytest_vllm_gates.incidents.types import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Fakes, Project

# One in each channel; some that URLs, JSON and Python spell otherwise.
PLANTED = {
    "environment": 'plant-"env"/1 é&<x>',
    "proxy": "plant-proxy-2",
    "Hub's token file": "plant-hubfile-3",
    "lane's environment": "plant-lane/env+4",
    "lane's flag": "plant-flag-5",
    "load workers' secret": "plant-workers-0123",
    "unnamed Hub token": "hf_" + "pLaNt6" * 6,
    "header in a log": "plantheader7",
    "URL in an error": "plant-url-8",
}
LANE = """
LANE_PASSWORD = {lane}
[serve]
api_key = {flag}
"""
OWN_GATE = """
import logging, os, sys
import pytest

from pytest_vllm_gates.outcomes import Case, Finding
from pytest_vllm_gates.outcomes import Inconclusive

PLANT = os.environ["PLANT_TOKEN"]


def test_fails(server, chat, conversation, evidence, record_property):
    local_name = {"key": server.api_key, "env": PLANT}
    answer = chat.whole(conversation, 10)
    evidence["answer"] = answer.as_evidence()
    evidence["headers"] = {"authorization": "Bearer " + server.api_key}
    evidence["said"] = PLANT
    record_property("mine", PLANT)
    print("on stdout", PLANT, UNNAMED)
    print("on stderr", PLANT, file=sys.stderr)
    logging.getLogger("x").warning("logged %s", PLANT)
    assert local_name == PLANT, f"curl -H 'Authorization: Bearer HEADER' http://me:URLPLANT@host"


def test_raises(server):
    raise ValueError(f"{PLANT} and {server.api_key}")


def test_cannot_decide(server):
    raise Inconclusive(f"not with {PLANT}")


def test_finds(chat, conversation, checking):
    answer = chat.whole(conversation, 10)
    case = Case("a case", {}, {**conversation.body(chat._family), "user": PLANT})
    checking([Finding(case, f"content is {answer.content!r}")], [case], f"a user sees {PLANT}")


@pytest.fixture
def breaks():
    raise OSError(PLANT)


def test_is_not_set_up(server, breaks):
    pass
"""
ORDINARY = """
import os, warnings

def test_warns():
    warnings.warn("beware of " + os.environ["PLANT_TOKEN"])

def test_ordinary():
    assert os.environ["PLANT_TOKEN"] == "x"
"""
SOURCES = {"mine", "ordinary", "lanes", "conversations"}
CANNOT_BE_COLLECTED = 'import os\nraise RuntimeError(os.environ["PLANT_TOKEN"])\n'


def spelled(secret: str) -> Iterator[bytes]:
    """Yield a secret as it may be written."""
    yield secret.encode()
    yield quote(secret, safe="").encode()
    yield quote(secret).encode()
    yield json.dumps(secret)[1:-1].encode()
    yield repr(secret)[1:-1].encode()
    # The last character of base64 is only partly the secret's.
    yield base64.b64encode(secret.encode()).rstrip(b"=")[:-1]
    yield base64.b64encode(b"user:" + secret.encode()).rstrip(b"=")[8:-1]


def files_in(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield every file below some folders, unpacked where it is packed."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                data = path.read_bytes()
                yield path, gzip.decompress(data) if path.suffix == ".gz" else data


@pytest.fixture
def planted(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    """A project every corner of which has a secret; its sources lie apart from what it writes."""
    hub = tmp_path / "hub"
    hub.mkdir()
    hub_token = PLANTED["Hub's token file"]
    (hub / "token").write_text(hub_token)
    for name, value in {
        "PLANT_TOKEN": PLANTED["environment"],
        "HTTPS_PROXY": f"http://me:{PLANTED['proxy']}@proxy:3128",
        "HF_HOME": str(hub),
        "GATES_LOAD_SECRET": PLANTED["load workers' secret"],
        "HARMLESS": f"{PLANTED['unnamed Hub token']} {hub_token}",
    }.items():
        monkeypatch.setenv(name, value)
    gate = OWN_GATE.replace("HEADER", PLANTED["header in a log"])
    gate = gate.replace("URLPLANT", PLANTED["URL in an error"])
    gate = gate.replace("UNNAMED", '"hf_" + "pLaNt6" * 6')
    project.write("mine/test_own.py", gate)
    project.write("ordinary/test_ordinary.py", ORDINARY)
    return project


def run(project: Project, *arguments: str) -> pytest.RunResult:
    return project.pytester.runpytest_inprocess(
        "--model", "qwen3.5", "--gates-report", "out", "--junitxml", "out/junit.xml",
        "--log-file", "out/log.txt", "--basetemp", str(project.path / "temporary"),
        "-o", "junit_logging=all", "-o", "junit_log_passing_tests=true", "-l", "-v", "-rA",
        "-W", "default", "-o", "junit_family=legacy",
        *arguments, "mine", "ordinary",
    )  # fmt: skip


def left_behind(project: Project, result: pytest.RunResult) -> list[tuple[str, bytes]]:
    """Return all outputs of a run, by place."""
    files = [
        (str(path), data)
        for path, data in files_in(project.path)
        if path != project.key_file and not SOURCES & {*path.relative_to(project.path).parts}
    ]
    return [
        *files,
        ("stdout", result.stdout.str().encode()),
        ("stderr", result.stderr.str().encode()),
    ]


def assert_none(outputs: list[tuple[str, bytes]], secrets: dict[str, str]) -> None:
    for channel, secret in secrets.items():
        for form in spelled(secret):
            where = [place for place, data in outputs if form in data]
            assert not where, f"the secret of the {channel} is in {where} as {form!r}"


@pytest.mark.parametrize("prompts", ["keep", "hash"])
def test_output_of_a_booted_run_has_no_secrets(
    planted: Project, prompts: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_GATES_CACHE", str(tmp_path / "cache"))
    planted.lane(
        "leaks,echoes",
        LANE.format(
            lane=json.dumps(PLANTED["lane's environment"]), flag=json.dumps(PLANTED["lane's flag"])
        ),
    )
    result = run(planted, "--lane", "fake", "--redact-prompts", prompts)
    assert result.ret == 1
    outputs = left_behind(planted, result)
    key = planted.key_file.read_text()
    assert_none(outputs, {**PLANTED, "boot": key})

    # It was all there to be seen.
    log = (planted.report / "qwen3.5" / "server.log").read_text()
    assert "PLANT_TOKEN" in log and "LANE_PASSWORD" in log and "the key is [redacted]" in log
    junit = (planted.report / "junit.xml").read_text()
    for words in ("on stdout [redacted]", "logged [redacted]", 'name="mine" value="[redacted]"'):
        assert words in junit or prompts == "hash"
    assert junit.count("[redacted]") > 10
    assert "beware of [redacted]" in result.stdout.str()
    assert "logged [redacted]" in (planted.report / "log.txt").read_text()
    incident_folders = {path.parent for path in planted.report.rglob(NAME)}
    assert len(incident_folders) >= 3
    assert (planted.path / ".pytest_cache").is_dir()
    says = b"Paris is the capital"
    quoting = [place for place, data in outputs if says in data]
    assert bool(quoting) is (prompts == "keep"), quoting
    question = b"What is the capital"
    assert (prompts == "keep") is any(
        question in data for place, data in outputs if "incidents" in place
    )
    outcomes = planted.outcomes()
    assert outcomes["own::test_cannot_decide[]"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("faults", "user"),
    [("echoes", ""), ("echoes,chat-500", ""), ("echoes,any-key,chat-500", "me:plant-userinfo-12@")],
)
def test_output_of_an_attached_run_has_no_secrets(
    planted: Project, fakes: Fakes, monkeypatch: pytest.MonkeyPatch, faults: str, user: str
) -> None:
    key = "plant-house-key-11"
    monkeypatch.setenv("HOUSE", key)
    server = fakes(faults, key=key, names=(f"m-{key}",))
    url = server.base_url.replace("//", f"//{user}")
    result = run(planted, "--base-url", url, "--api-key-env", "HOUSE")
    assert result.ret == 1
    secrets = {**PLANTED, "variable": key, "URL": "plant-userinfo-12"}
    assert_none(left_behind(planted, result), secrets)
    if user:
        assert "http://[redacted]@127.0.0.1" in result.stdout.str()
        assert "no chat today (chat-500) to Basic [redacted]" in result.stdout.str()
    elif "chat-500" in faults:
        assert "no chat today (chat-500) to Bearer [redacted]" in result.stdout.str()
    else:
        assert '"id": "m-[redacted]"' in (planted.report / "verdict.json").read_text()


def test_collection_error_has_no_secrets(planted: Project) -> None:
    planted.write("mine/test_broken.py", CANNOT_BE_COLLECTED)
    result = run(planted, "--lane", "fake")
    assert result.ret != 0
    assert "RuntimeError: [redacted]" in result.stdout.str()
    assert_none(left_behind(planted, result), PLANTED)


def test_usage_error_has_no_secrets(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANT_TOKEN", PLANTED["environment"])
    result = project.pytest("--model", "qwen3.5", "--lane", PLANTED["environment"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unknown lane '[redacted]'" in result.stderr.str()


GOLDEN = """
import os
from pytest_vllm_gates.goldens import settings_golden

def test_settings(server, golden):
    golden.check("settings", settings_golden("of ours", {"key": os.environ["SETTING"], "n": 1}))
"""


def test_golden_is_recorded_without_secrets(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "plant-golden-13"
    project.write("mine/test_settings.py", GOLDEN)
    monkeypatch.setenv("SETTING", "harmless")
    arguments = ("-k", "test_settings", "mine")
    assert project.gates(*arguments, "--update-golden").ret == 0
    monkeypatch.setenv("SETTING", secret)
    monkeypatch.setenv("SOME_SECRET", secret)
    result = project.gates(*arguments)
    assert result.ret == 1
    assert '+ key = "[redacted]"' in result.stdout.str()
    assert_none(left_behind(project, result), {"golden": secret})
    result = project.gates(*arguments, "--update-golden")
    assert result.ret == 1
    assert "the golden 'settings' is not recorded: it would contain a secret" in result.stdout.str()
    assert_none(left_behind(project, result), {"golden": secret})
