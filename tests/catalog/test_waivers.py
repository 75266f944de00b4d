"""`waivers.toml` needs a check, an owner, a reason and a last day, or it is refused."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import waivers
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TODAY = datetime.date(2026, 11, 22)
GATES = ("boot", "streaming", "tools")
WHOLE = {
    "check": '"qwen3.5: streaming: test_usage"',
    "who": '"jane@example.org"',
    "why": '"the client is mended on Friday"',
    "until": "2026-12-01",
}


def write_waivers(project: Path, **changes: str | None) -> Path:
    """Write a file of one good waiver and one with changes; None takes a key away."""
    path = project / waivers.NAME
    tables: list[dict[str, str | None]] = [{**WHOLE}, {**WHOLE, **changes}]
    path.write_text(
        "\n".join(
            "[[waiver]]\n"
            + "".join(f"{key} = {value}\n" for key, value in table.items() if value is not None)
            for table in tables
        )
    )
    return path


def load(project: Path) -> tuple[waivers.Waiver, ...]:
    return waivers.load_all(project, GATES, TODAY)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Put the machine into another time zone."""

    def put(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield put
    monkeypatch.undo()
    time.tzset()


def test_waiver_days_are_utc(zone: Callable[[str], None]) -> None:
    days = set()
    for name in ("west+12", "east-14"):
        zone(name)
        days.add(waivers.today())
    assert len(days) == 1


def test_a_project_without_the_file_waives_nothing(tmp_path: Path) -> None:
    assert load(tmp_path) == ()
    (tmp_path / waivers.NAME).write_text("")
    assert load(tmp_path) == ()


def test_waiver_has_all_fields(tmp_path: Path) -> None:
    write_waivers(tmp_path, check='"glm*: tools"', lane='"cpu-previous"')
    first, second = load(tmp_path)
    assert (first.family, first.gate, first.test) == ("qwen3.5", "streaming", "test_usage")
    assert (first.who, first.why) == ("jane@example.org", "the client is mended on Friday")
    assert (first.until, first.lane) == (datetime.date(2026, 12, 1), None)
    assert (second.family, second.gate, second.test) == ("glm*", "tools", "*")
    assert second.lane == "cpu-previous"


def test_waiver_lasts_to_the_end_of_its_last_day(tmp_path: Path) -> None:
    write_waivers(tmp_path)
    first = load(tmp_path)[0]
    assert not first.expired(first.until)
    assert first.expired(first.until + datetime.timedelta(days=1))


@pytest.mark.parametrize(
    ("changes", "line", "message"),
    [
        ({"untill": '"x"'}, 12, "unknown key 'waiver.1.untill'; did you mean 'until'?"),
        ({"who": None}, None, "the key 'waiver.1.who' is missing"),
        ({"why": None}, None, "the key 'waiver.1.why' is missing"),
        ({"until": None}, None, "the key 'waiver.1.until' is missing"),
        ({"check": None}, None, "the key 'waiver.1.check' is missing"),
        ({"who": '" "'}, 9, "waiver.1.who: String should have at least 1 character"),
        ({"until": '"soon"'}, 11, "waiver.1.until: Input should be a valid date"),
        ({"until": "2026-12-01T10:00:00"}, 11, "waiver.1.until: Input should be a valid date"),
        ({"until": "2027-02-21"}, 11, "a waiver lasts at most 90 days, and 2027-02-21 is 91 days"),
        ({"check": '"streaming"'}, 8, "a check is 'family: gate: test' or 'family: gate'"),
        ({"check": '"qwen3.5:streaming"'}, 8, "a check is 'family: gate: test' or"),
        ({"check": '"qwen3.5: *"'}, 8, "the gate is one name, with no * in it"),
        ({"check": '"qwen3.5: stream*: test_x"'}, 8, "the gate is one name, with no * in it"),
        ({"check": '"qwen35: streaming"'}, 8, "unknown family 'qwen35'; did you mean 'qwen3.5'?"),
        ({"check": '"mixtral*: streaming"'}, 8, "unknown family 'mixtral*'; "),
        ({"check": '"glm/flesh: tools"'}, 8, "unknown family 'glm/flesh'; did you mean 'glm/fl"),
        ({"check": '"glm: steaming"'}, 8, "unknown gate 'steaming'; did you mean 'streaming'?"),
        ({"check": '"glm: weather"'}, 8, "unknown gate 'weather'; known: boot, streaming, tools"),
        ({"lane": '"gpu"'}, 12, "unknown lane 'gpu'; "),
    ],
)
def test_invalid_waiver_is_reported_with_its_line(
    tmp_path: Path, changes: dict[str, str | None], line: int | None, message: str
) -> None:
    path = write_waivers(tmp_path, **changes)
    with pytest.raises(UserError) as raised:
        load(tmp_path)
    assert str(raised.value).startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert message in str(raised.value)


def test_last_allowed_day_is_named_and_accepted(tmp_path: Path) -> None:
    write_waivers(tmp_path, until="2030-01-01")
    with pytest.raises(UserError, match="until = 2027-02-20 is the last day it may name today"):
        load(tmp_path)
    write_waivers(tmp_path, until="2027-02-20")
    assert len(load(tmp_path)) == 2


def test_gate_of_the_project_is_accepted(tmp_path: Path) -> None:
    write_waivers(tmp_path, check='"*: weather"')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "test_weather.py").write_text("")
    assert load(tmp_path)[1].gate == "weather"


def test_project_lane_and_running_server_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "lanes").mkdir()
    (tmp_path / "lanes" / "canary.toml").write_text('title = "x"\npython = "/py"\n')
    for lane in ("canary", "base-url", "cpu"):
        write_waivers(tmp_path, lane=f'"{lane}"')
        assert load(tmp_path)[1].lane == lane


def test_documented_example_is_a_valid_waiver(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text(encoding="utf-8")
    (example,) = (part for part in page.split("```toml\n") if part.startswith("[[waiver]]"))
    (tmp_path / waivers.NAME).write_text(example.partition("```")[0])
    (waiver,) = load(tmp_path)
    assert waiver.gate in verdict_gates.gate_files()
    source = verdict_gates.gate_files()[waiver.gate].read_text(encoding="utf-8")
    assert f"def {waiver.test}(" in source
