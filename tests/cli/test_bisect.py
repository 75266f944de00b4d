"""`vllm-gates bisect`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bisection.lane_pairs import GOOD, LOCK
from environment.lane_site import Site, site_fixture  # noqa: F401, TC002 - a fixture
from report.documents import REJECT, load

from pytest_vllm_gates.bisection import index, judge
from pytest_vllm_gates.bisection.judge import Judgement
from pytest_vllm_gates.bisection.types import TrialAnswer
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.report import document as documents, publish

Captured = pytest.CaptureFixture[str]

ASKED = ("--good", "good", "--bad", "bad", "--model", "qwen3.5", "-m", "tools")


@pytest.fixture(name="two_lanes")
def two_lanes_fixture(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a project whose lane `bad` has a flag that lane `good` has not."""
    monkeypatch.chdir(site.project)
    monkeypatch.setenv("VLLM_GATES_CACHE", str(site.cache))
    monkeypatch.setattr(index, "releases_of", lambda name: (name,))
    for name, text in (("good", ""), ("bad", "[serve]\nenforce_eager = true\n")):
        site.write(f"{name}.txt", LOCK.format(**GOOD))
        site.write(f"{name}.toml", f'title = "{name}"\nlock = "{name}.txt"\n{text}')

    def run(question: object, lane: Path, **rest: object) -> Judgement:
        del question, rest
        if lanes.load(str(lane), site.project).serve:
            return Judgement(TrialAnswer.BAD, "FAIL test_x", ("test_x",))
        return Judgement(TrialAnswer.GOOD, "passes")

    monkeypatch.setattr(judge, "run", run)
    return site


def test_dry_run_prints_the_plan_and_boots_nothing(two_lanes: Site, capsys: Captured) -> None:
    assert main(["bisect", *ASKED, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "  flags: no enforce_eager -> enforce_eager\n" in out
    assert "at most 6 boots for one culprit:" in out
    assert not two_lanes.folder.exists()


def test_result_is_a_sentence_below_the_trials(two_lanes: Site, capsys: Captured) -> None:
    assert main(["bisect", *ASKED]) == 0
    out = capsys.readouterr().out
    assert "  1  bad flags" in out
    assert "the culprit is flags enforce_eager; both sides were tried three times" in out
    assert "6 trials" in out
    assert main(["bisect", *ASKED]) == 0
    assert "6 trials are known from an earlier search: " in capsys.readouterr().out
    assert two_lanes.made()


def test_json_has_culprits_and_trials(two_lanes: Site, capsys: Captured) -> None:
    del two_lanes
    assert main(["bisect", *ASKED, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["certain"]
    assert document["culprits"][0]["items"] == ["enforce_eager"]
    answers = [trial["answer"] for trial in document["trials"]]
    assert answers == ["BAD", "GOOD", *["GOOD", "BAD"] * 2]


def test_report_of_the_bad_lane_gets_a_section(
    two_lanes: Site, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(question: object, lane: Path, *, folder: Path, **rest: object) -> Judgement:
        del question, rest
        folder.mkdir(parents=True)
        documents.write(folder, load(REJECT))
        if lanes.load(str(lane), two_lanes.project).serve:
            return Judgement(TrialAnswer.BAD, "FAIL test_x", ("test_x",))
        return Judgement(TrialAnswer.GOOD, "passes")

    monkeypatch.setattr(judge, "run", run)
    assert main(["bisect", *ASKED]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "  report: " in each]
    page = Path(line.partition("report: ")[2])
    assert "The change that makes bad bad" in page.read_text()
    section = publish.read(page.parent)["bisection"]
    assert section["culprits"][0]["items"] == ["enforce_eager"]
    assert [trial["answer"] for trial in section["trials"]] == ["BAD", "GOOD", *["GOOD", "BAD"] * 2]
    assert section["certain"]
    page.with_name("verdict.json").write_text("{}")
    assert main(["bisect", *ASKED]) == 0
    assert "the report of the bad lane was not changed" in capsys.readouterr().err


def test_lanes_that_do_not_differ_end_with_1(two_lanes: Site, capsys: Captured) -> None:
    del two_lanes
    assert main(["bisect", "--good", "good", "--bad", "good", *ASKED[4:]]) == 1
    assert "not found: the two lanes do not differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--model", "m"), "give either --repro or -m"),
     (("-m", "tools"), "-m needs a model"),
     (("--model", "m", "-m", "tools", "--repro", "x"), "give either --repro or -m"),
     (("--repro", "none"), "incident not found"),
     (("--model", "m", "-m", "tools", "--noise", "0.7"), "--noise 0.7: expected a number from 0"),
     (("--model", "m", "-m", "tools", "--good", "none"), "unknown lane 'none'")],
)  # fmt: skip
def test_invalid_options_are_refused(
    two_lanes: Site, capsys: Captured, words: tuple[str, ...], message: str
) -> None:
    del two_lanes
    assert main(["bisect", "--good", "good", "--bad", "bad", *words]) == 2
    assert message in capsys.readouterr().err
