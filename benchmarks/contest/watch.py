"""A pytest plugin by which contestants look at each faulty server of `tests/faults`.

It is loaded into the run of `tests/faults` and, by PYTEST_ADDOPTS, into each run of the gates that
a test starts, in this process or another. In the inner run, the contestants look after the gates
and before the server ends. In the outer run, the test's outcome is this suite's result.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.contest import faults, looking
from pytest_vllm_gates.session.items import run_key

if TYPE_CHECKING:
    from collections.abc import Generator

    from benchmarks.contest.faults import Entry
    from pytest_vllm_gates.session.launch import Launch

ROOT = Path(__file__).parents[2]
NAME = "benchmarks.contest.watch"
ADDOPTS = "PYTEST_ADDOPTS"
PLAN = "LEAGUE_PLAN"
FAULT = "LEAGUE_FAULT"
ENDS_THE_SERVER = "test_leaves_nothing_behind"
STOPS_THE_SERVER = "comparison"
"""A fixture that stops the server, for two others need its place."""
entries_key = pytest.StashKey[dict[str, "Entry"]]()
launches_key = pytest.StashKey[list[Any]]()


def plan() -> dict[str, Any]:
    """Return what is to be played."""
    text = Path(os.environ[PLAN]).read_text(encoding="utf-8")
    read: dict[str, Any] = json.loads(text)
    return read


def _of_gates(config: pytest.Config) -> bool:
    """Return whether it is a run of the gates that a test started."""
    return run_key in config.stash


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what is planned and not yet played."""
    if _of_gates(config):
        return
    entries = {item.nodeid: one for item in items if (one := faults.entry(item))}
    chosen = choose([*entries.values()], plan())
    kept = [item for item in items if (one := entries.get(item.nodeid)) and one.id in chosen]
    dropped = [item for item in items if item not in kept]
    config.stash[entries_key] = entries
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def choose(entries: list[Entry], planned: dict[str, Any]) -> set[str]:
    """Return the ids that are to be played: of each class so many, less those that were."""
    counts: Counter[str] = Counter()
    chosen: set[str] = set()
    for one in entries:
        if one.server != planned["server"] or (
            planned["kinds"] and one.kind not in planned["kinds"]
        ):
            continue
        counts[one.kind] += 1
        if planned["per_kind"] is None or counts[one.kind] <= planned["per_kind"]:
            chosen.add(one.id)
    return chosen - set(planned["played"])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Name the fault that is played to the runs that its test starts."""
    if not _of_gates(item.config):
        looking.watch_proxies()
        if NAME not in os.environ.get(ADDOPTS, ""):  # tests/conftest.py sets it when it is read
            os.environ[ADDOPTS] = f"{os.environ.get(ADDOPTS, '')} -p {NAME}"
        os.environ[FAULT] = item.config.stash[entries_key][item.nodeid].id


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Look at a server before its fixture ends it, at the latest."""
    if fixturedef.argname == STOPS_THE_SERVER and _of_gates(request.config):
        _look_now(request.config)
    result = yield
    if fixturedef.argname == "launch" and _of_gates(request.config) and os.environ.get(FAULT):
        config = request.config
        subject = request.getfixturevalue("subject")
        seen = partial(_look, config, result, subject)
        config.stash.setdefault(launches_key, []).append(seen)
        fixturedef.addfinalizer(seen)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look before a test that ends the server."""
    if _of_gates(item.config) and item.name.startswith(ENDS_THE_SERVER):
        _look_now(item.config)


def _look_now(config: pytest.Config) -> None:
    for seen in config.stash.get(launches_key, []):
        seen()


def _look(config: pytest.Config, launch: Launch, subject: Any) -> None:
    launches = config.stash.get(launches_key, [])
    options = config.stash[run_key].options
    if not launches or options.update_golden or options.update_baseline:
        return
    launches.clear()
    began = time.monotonic()
    looks = looking.at(launch, subject, config.stash[run_key].lane.base_url, plan())
    line = {
        "id": os.environ[FAULT],
        "seconds": round(time.monotonic() - began, 2),
        "looks": {name: one.record() for name, one in looks.items()},
    }
    with Path(plan()["looks"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write down what came of a fault."""
    report = yield
    wrong = report.when == "setup" and report.failed
    if not _of_gates(item.config) and (report.when == "call" or wrong):
        planned = plan()
        one = item.config.stash[entries_key][item.nodeid]
        looked = [line for line in _lines(Path(planned["looks"])) if line["id"] == one.id]
        Path(planned["looks"]).unlink(missing_ok=True)
        looks = looked[-1]["looks"] if looked else {}
        asked_s = sum(line["seconds"] for line in looked)
        faulty = one.kind != faults.HARMLESS
        record = {
            "what": "fault" if faulty else faults.HARMLESS,
            "id": one.id,
            "kind": one.tested,
            "server": one.server,
            # The test of a fault passes if it was found, that of a harmless change if none was.
            "suite": {
                "found": report.passed is faulty,
                "seconds": round(call.duration - asked_s, 1),
                "why": "" if report.passed else report.longreprtext.replace(f"{ROOT}/", "")[-300:],
            },
            "looks": looks,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": planned["commit"],
        }
        with Path(planned["results"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    return report


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
