"""Verdicts stay true beside other plugins, in other people's projects and with any selection."""

from __future__ import annotations

import json
import re
import warnings
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest
from survivors import none_of

if TYPE_CHECKING:
    from conftest import Project

WHOLE = {"promotion": "PROMOTE", "outcomes": 11}
FLAKY = """
from pathlib import Path

def test_flaky(server, evidence):
    tries = Path(FILE)
    tries.write_text(tries.read_text() + "." if tries.exists() else ".")
    evidence["try"] = len(tries.read_text())
    assert evidence["try"] > 1, "the first answer was another"
"""
SLOW = """
import time
import pytest

@pytest.mark.timeout(0.5)
def test_slow(server):
    time.sleep(30)
"""
ASYNC = """
import asyncio
MARK

async def test_requests_at_once(server, evidence):
    evidence["url"] = server.base_url
    await asyncio.sleep(0)
    assert server.base_url.startswith("http")
"""
STRICT_INI = """
[pytest]
addopts = --strict-markers --strict-config -ra --tb=short --import-mode=importlib --doctest-modules
testpaths = theirs
filterwarnings = error
xfail_strict = true
python_files = check_*.py
python_functions = check_*
markers = slow: theirs
"""
THEIRS = """
import pytest

@pytest.fixture(scope="session")
def database():
    return {"rows": 3}

@pytest.fixture(autouse=True)
def _in_order(request):
    yield

def pytest_collection_modifyitems(items):
    items.reverse()
"""
SNAPSHOT = "def test_page(snapshot):\n    assert {'title': TITLE} == snapshot\n"


@pytest.fixture(scope="module")
def _plugins_imported() -> None:
    """Import every installed plugin once: pytester forgets what a run in this process imports."""
    with warnings.catch_warnings(action="ignore"):
        for entry in entry_points(group="pytest11"):
            entry.load()


@pytest.fixture(autouse=True)
def _in_company(_plugins_imported: None, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load what is installed, as it is for people, but for what shuffles or warns unless set."""
    del project  # drops what was set before it
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio -p no:randomly")


def judged(project: Project) -> dict[str, object]:
    """Return the verdict of the last run, and of how many tests."""
    return {"promotion": project.verdict()["promotion"], "outcomes": len(project.outcomes())}


def reasons(project: Project) -> str:
    return "\n".join(project.verdict()["reasons"])


def server_is_gone(project: Project) -> bool:
    log = (project.report / "qwen3.5" / "server.log").read_text()
    return none_of({int(pid) for pid in re.findall(r"pid=(\d+)", log)})


# Other plugins.


class TestRandomly:
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_order_changes_no_outcome_and_the_server_is_ended_last(
        self, project: Project, seed: int
    ) -> None:
        result = project.gates("-p", "randomly", f"--randomly-seed={seed}", "-v")
        assert result.ret == 0
        assert judged(project) == WHOLE
        ids = [line.split()[0] for line in result.outlines if " PASSED " in line]
        assert ids[-1] == "gates/test_boot.py::test_leaves_nothing_behind[qwen3.5]"
        usual = project.gates("-v")
        assert ids == [line.split()[0] for line in usual.outlines if " PASSED " in line]

    def test_a_server_that_does_not_boot_is_the_boot_tests_alone(self, project: Project) -> None:
        for seed in (1, 2):
            assert (
                project.gates("-p", "randomly", f"--randomly-seed={seed}", faults="dies").ret == 1
            )
            outcomes = project.outcomes()
            assert outcomes.pop("boot::test_boots[]") == "FAIL"
            assert set(outcomes.values()) == {"BLOCKED"}


class TestRerunfailures:
    def test_a_gate_that_passes_when_it_is_tried_again_has_failed(self, project: Project) -> None:
        project.write("mine/test_own.py", FLAKY.replace("FILE", repr(str(project.path / "tries"))))
        result = project.gates("mine", "--reruns", "2")
        assert "1 rerun" in result.stdout.str()
        assert (project.path / "tries").read_text() == ".."
        assert result.ret == 1
        assert project.outcomes()["own::test_flaky[]"] == "FAIL"
        assert project.verdict()["promotion"] == "REJECT"
        assert "the first answer was another" in reasons(project)

    def test_a_sound_server_is_promoted(self, project: Project) -> None:
        assert project.gates("--reruns", "2", "--require-promotion").ret == 0
        assert judged(project) == WHOLE


class TestTimeout:
    def test_a_test_out_of_time_fails_with_its_reason(self, project: Project) -> None:
        project.write("mine/test_own.py", SLOW)
        result = project.gates("mine")
        assert result.ret == 1
        outcomes = project.outcomes()
        assert outcomes.pop("own::test_slow[]") == "FAIL"
        assert set(outcomes.values()) == {"PASS"}
        assert "Timeout (>0.5s) from pytest-timeout" in reasons(project)
        assert server_is_gone(project)

    def test_a_boot_out_of_time_promotes_nothing_and_is_ended(self, project: Project) -> None:
        result = project.gates("--timeout", "2", faults="silent")
        assert result.ret == 1
        assert project.verdict()["promotion"] == "REJECT"
        assert "Timeout (>2.0s) from pytest-timeout" in reasons(project)
        assert server_is_gone(project)


class TestAsyncio:
    @pytest.mark.parametrize(
        ("mode", "mark"),
        [("strict", "import pytest\npytestmark = pytest.mark.asyncio"), ("auto", "")],
        ids=["strict", "auto"],
    )
    def test_a_gate_of_ones_own_may_be_asynchronous(
        self, project: Project, mode: str, mark: str
    ) -> None:
        project.write("mine/test_own.py", ASYNC.replace("MARK", mark))
        result = project.gates(
            "mine", "-p", "asyncio", f"--asyncio-mode={mode}",
            "-o", "asyncio_default_fixture_loop_scope=function",
        )  # fmt: skip
        assert result.ret == 0, result.stdout.str()
        assert judged(project) == {"promotion": "PROMOTE", "outcomes": 12}


class TestHtml:
    def test_its_page_has_every_outcome_and_no_secret(self, project: Project) -> None:
        result = project.gates("--html=theirs.html", "--self-contained-html", faults="dies-after:3")
        assert result.ret == 1
        page = (project.path / "theirs.html").read_text()
        assert "test_streamed_answer_equals_the_whole" in page
        assert "illegal memory access" in page
        assert project.key_file.read_text() not in page
        assert project.verdict()["promotion"] == "REJECT"


class TestCov:
    @pytest.mark.parametrize(("least", "status"), [(0, 0), (100, 1)])
    def test_coverage_is_measured_and_its_limit_kept(
        self, project: Project, least: int, status: int
    ) -> None:
        project.write("app.py", "def used():\n    return 1\n\ndef unused():\n    return 2\n")
        project.write("theirs/test_app.py", "import app\n\ndef test_app(): assert app.used()\n")
        result = project.gates(
            "theirs", "--cov=app", "--cov-report=term", f"--cov-fail-under={least}",
            "-o", "pythonpath=.", "-p", "no:cacheprovider",
        )  # fmt: skip
        assert re.search(r"^app\.py +4 +1 +75%$", result.stdout.str(), re.MULTILINE)
        assert result.ret == status
        assert project.verdict()["promotion"] == ("HOLD" if status else "PROMOTE")


class TestXdist:
    def test_a_project_with_workers_gets_the_way_out(self, project: Project) -> None:
        project.pytester.makeini("[pytest]\naddopts = -n 2\n")
        result = project.gates()
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "leave -n out, and families follow one another (-n 0 if" in result.stderr.str()
        assert project.gates("-n", "0").ret == 0
        assert judged(project) == WHOLE


# Selections.


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("-k", "boots or words"), "streaming did not run"),
        (("-k", "not plain"), "tests of the gates that ran were deselected"),
        (("--maxfail=1", "-k", "boot or words"), "streaming did not run"),
        (("--setup-only",), ""),
        (("--setup-plan",), ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_partial_selection_yields_hold(
    project: Project, arguments: tuple[str, ...], why: str
) -> None:
    project.gates(*arguments)
    assert project.verdict()["promotion"] == "HOLD"
    assert why in reasons(project)


@pytest.mark.parametrize("arguments", [("-x",), ("--maxfail=2",)])
def test_a_run_that_is_cut_short_never_promotes(
    project: Project, arguments: tuple[str, ...]
) -> None:
    assert project.gates(*arguments, faults="bangs").ret == 1
    assert project.verdict()["promotion"] == "REJECT"
    if arguments == ("-x",):
        assert "tests were collected and did not run to their end" in reasons(project)
    assert server_is_gone(project)


@pytest.mark.parametrize(
    "arguments",
    [("--collect-only",), ("--co", "-q"), ("--fixtures",), ("--cache-show", "-p", "cacheprovider")],
)
def test_listing_boots_nothing(project: Project, arguments: tuple[str, ...]) -> None:
    assert project.gates(*arguments).ret == 0
    assert not project.report.exists()
    assert not project.key_file.exists()


class TestCache:
    """pytest's memory of the last run."""

    LAST = "gates/test_boot.py::test_leaves_nothing_behind[qwen3.5]"

    @pytest.fixture(autouse=True)
    def _remembered(self, project: Project) -> None:
        """The test that ends the server failed, and is the only one that is new."""
        remembered = {
            "lastfailed": {self.LAST: True},
            "nodeids": ["gates/test_boot.py::test_boots"],
        }
        for name, value in remembered.items():
            project.write(f".pytest_cache/v/cache/{name}", json.dumps(value))

    def run(self, project: Project, *arguments: str, faults: str = "") -> pytest.RunResult:
        project.lane(faults)
        return project.pytester.runpytest_inprocess(
            "--model", "qwen3.5", "--lane", "fake", "--gates-report", "out", *arguments
        )

    def test_only_the_last_failed_yield_hold(self, project: Project) -> None:
        assert self.run(project, "--lf").ret == 0
        assert judged(project) == {"promotion": "HOLD", "outcomes": 1}
        # Nothing failed in that run, and so the next is whole.
        assert self.run(project, "--lf").ret == 0
        assert judged(project) == WHOLE

    @pytest.mark.parametrize("flag", ["--ff", "--nf"])
    def test_failed_or_new_tests_first_end_no_server_early(
        self, project: Project, flag: str
    ) -> None:
        result = self.run(project, flag)
        assert result.ret == 0, result.stdout.str()
        assert judged(project) == WHOLE

    def test_step_by_step_yields_hold(self, project: Project) -> None:
        assert self.run(project, "--sw", faults="bangs").ret == pytest.ExitCode.INTERRUPTED
        assert project.verdict()["promotion"] == "REJECT"
        assert self.run(project, "--sw").ret == 0
        assert project.verdict()["promotion"] == "HOLD"


# Other people's projects.


def test_a_strict_project_with_its_own_settings(project: Project) -> None:
    project.write("pytest.ini", STRICT_INI)
    project.write("tox.ini", "")
    project.write("conftest.py", THEIRS)
    project.write(
        "theirs/check_rows.py",
        "import pytest\n@pytest.mark.slow\ndef check_rows(database):\n"
        "    assert database['rows'] == 3\n",
    )
    result = project.gates()
    assert result.ret == 0, result.stdout.str()
    assert judged(project) == WHOLE
    result = project.gates("theirs")
    assert "12 passed" in result.stdout.str()
    assert judged(project) == WHOLE
    assert project.pytest().parseoutcomes() == {"passed": 1}


def test_snapshots_of_the_project_are_its_own(project: Project) -> None:
    page = project.write("theirs/test_page.py", SNAPSHOT.replace("TITLE", "'one'"))
    result = project.gates("theirs", "--snapshot-update")
    assert result.ret == 0, result.stdout.str()
    assert judged(project) == WHOLE
    # In a worker of pytest-xdist syrupy keeps a lock beside it.
    (kept,) = (project.path / "theirs" / "__snapshots__").glob("test_page.ambr")
    assert "'one'" in kept.read_text()
    assert not (project.path / "golden").exists()

    assert project.gates("theirs").ret == 0
    page.write_text(SNAPSHOT.replace("TITLE", "'two'"))
    assert project.gates("theirs").ret == 1
    assert project.verdict()["promotion"] == "HOLD"
    assert "something besides the gates failed" in reasons(project)
    assert "'one'" in kept.read_text()


def test_a_fixture_of_the_project_that_has_a_name_of_the_gates_is_named(project: Project) -> None:
    project.write(
        "conftest.py", "import pytest\n@pytest.fixture\ndef server():\n    return 'theirs'\n"
    )
    result = project.gates()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = result.stderr.str()
    assert f"{project.path / 'conftest.py'}: its fixture 'server' replaces the gates' own" in told
    assert "rename it, or leave it out: pytest --noconftest --model ..." in told
    assert project.gates("--noconftest").ret == 0
    assert judged(project) == WHOLE


def test_a_fixture_of_a_folder_replaces_the_gates_in_it(project: Project) -> None:
    project.write(
        "mine/conftest.py",
        "import pytest\n@pytest.fixture\ndef trivial(server):\n    return server.base_url\n",
    )
    project.write(
        "mine/test_own.py", "def test_own(trivial):\n    assert trivial.startswith('http')\n"
    )
    assert project.gates("mine").ret == 0
    assert judged(project) == {"promotion": "PROMOTE", "outcomes": 12}
