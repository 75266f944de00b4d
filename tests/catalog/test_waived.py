"""A waiver covers the failures it names until its last day, and nothing else."""

from __future__ import annotations

import datetime
import re

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.catalog.toml import matches
from pytest_vllm_gates.catalog.waivers import SettledWaiver, Waiver, of_lane
from pytest_vllm_gates.outcomes import Outcome, TestResult

TODAY = datetime.date(2026, 11, 22)
TEST = "test_usage[qwen3.5-plain]"


def waiver(check: str, days: int = 5, lane: str | None = None, owner: str = "Jane") -> Waiver:
    until = TODAY + datetime.timedelta(days=days)
    return Waiver(check=check, who=owner, why="a fix is on its way", until=until, lane=lane)


def apply_waivers(*waivers: Waiver, test: str = TEST) -> tuple[Outcome, str]:
    return of_lane(waivers, "cpu", TODAY).apply("qwen3.5", "streaming", test, "it broke")


def result(outcome: Outcome, test: str = TEST, gate: str = "streaming") -> TestResult:
    return TestResult("qwen3.5", gate, test, outcome)


def settle_waivers(the_waiver: Waiver, *results: TestResult) -> list[SettledWaiver]:
    return list(of_lane([the_waiver], "cpu", TODAY).settle(results))


@pytest.mark.parametrize(
    "check",
    [
        "qwen3.5: streaming",
        "qwen3.5: streaming: test_usage",
        f"qwen3.5: streaming: {TEST}",
        "qwen3.5: streaming: test_*",
        "qwen3.5: streaming: *-plain]",
        "qwen*: streaming",
        "*: streaming: *",
    ],
)
def test_a_check_that_names_the_failure_covers_it(check: str) -> None:
    reason = "waived by Jane until 2026-11-27 (a fix is on its way): it broke"
    assert apply_waivers(waiver(check)) == (Outcome.WAIVED, reason)


def test_test_name_without_brackets_covers_all_cases() -> None:
    of_test = waiver("qwen3.5: streaming: test_usage")
    assert apply_waivers(of_test, test="test_usage[qwen3.5-stop[0]]")[0] is Outcome.WAIVED


@pytest.mark.parametrize(
    "check",
    [
        "glm: streaming",
        "qwen3: streaming",
        "qwen3.5/moe: streaming",
        "qwen3.5: tools",
        "qwen3.5: streaming: usage",
        "qwen3.5: streaming: test_usage[qwen3.5-other]",
        "qwen3.5: streaming: test_us",
        "qwen3x5: streaming",
        "qwen3.5: streaming: test_usage[*-other]",
        "qwen3.5: streaming: test_usag[e]",
    ],
)
def test_check_that_names_something_else_covers_nothing(check: str) -> None:
    assert apply_waivers(waiver(check)) == (Outcome.FAIL, "it broke")


def test_waiver_for_another_lane_covers_nothing() -> None:
    assert apply_waivers(waiver("qwen3.5: streaming", lane="cuda"))[0] is Outcome.FAIL
    assert apply_waivers(waiver("qwen3.5: streaming", lane="cpu"))[0] is Outcome.WAIVED


def test_expired_waiver_fails_and_names_its_owner() -> None:
    assert apply_waivers(waiver("qwen3.5: streaming", days=-1)) == (
        Outcome.FAIL,
        "its waiver expired on 2026-11-21 (by Jane: a fix is on its way): it broke",
    )


def test_last_day_is_included() -> None:
    assert apply_waivers(waiver("qwen3.5: streaming", days=0))[0] is Outcome.WAIVED


def test_longest_lasting_waiver_is_used() -> None:
    waivers = [waiver("qwen3.5: streaming", days, owner=f"{days}") for days in (-3, 7, 2)]
    assert apply_waivers(*waivers)[1].startswith("waived by 7 ")
    assert apply_waivers(*waivers[:1])[1].startswith("its waiver expired")


W = "qwen3.5: streaming: test_usage"
USED = f"waived: {W} (by Jane, until 2026-11-27: a fix is on its way)"
UNUSED = f"waiver, unused: {W} (by Jane, until 2026-11-27: a fix is on its way)"
EXPIRED = f"waiver, expired: {W} (by Jane, until 2026-11-21: a fix is on its way)"
GOES = "; nothing fails there any more (delete it)"
NAMELESS = "; no test of this run has that name (mend its check, or delete it)"


@pytest.mark.parametrize(
    ("days", "outcomes", "state", "message"),
    [
        (5, [Outcome.WAIVED], "used", USED),
        (5, [Outcome.PASS, Outcome.WAIVED], "used", USED),
        (5, [Outcome.PASS], "unused", UNUSED + GOES),
        (5, [Outcome.KNOWN, Outcome.NOT_APPLICABLE], "unused", UNUSED + GOES),
        (5, [Outcome.PASS, Outcome.KNOWN, Outcome.NOT_APPLICABLE], "unused", UNUSED + GOES),
        (5, [Outcome.BLOCKED], "unused", UNUSED),
        (5, [Outcome.PASS, Outcome.INCONCLUSIVE], "unused", UNUSED),
        (5, [], "unused", UNUSED + NAMELESS),
        (-1, [Outcome.FAIL], "expired", EXPIRED),
        (-1, [Outcome.BLOCKED], "expired", EXPIRED),
        (-1, [Outcome.PASS], "expired", EXPIRED + GOES),
        (-1, [], "expired", EXPIRED + NAMELESS),
    ],
)
def test_state_of_a_waiver_is_reported(
    days: int, outcomes: list[Outcome], state: str, message: str
) -> None:
    results = [result(outcome) for outcome in outcomes] + [result(Outcome.PASS, "test_other")]
    unsettled = waiver(W, days)
    (settled_waiver,) = settle_waivers(unsettled, *results)
    assert (settled_waiver.waiver, settled_waiver.state, settled_waiver.told) == (
        unsettled,
        state,
        message,
    )


def test_waiver_outside_the_run_is_not_reported() -> None:
    ran = result(Outcome.PASS, "test_call", "tools")
    assert settle_waivers(waiver(W), ran) == []
    assert settle_waivers(waiver("glm: tools"), ran) == []
    assert settle_waivers(waiver("qwen3.5: tools", lane="cuda"), ran) == []
    assert len(settle_waivers(waiver("qwen3.5: tools"), ran)) == 1


@given(
    st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.WAIVED]),
    st.integers(-3, 3),
)
def test_only_a_waived_failure_uses_a_waiver(outcome: Outcome, days: int) -> None:
    (settled_waiver,) = settle_waivers(waiver(W, days), result(outcome))
    assert settled_waiver.state == ("expired" if days < 0 else "unused")


@given(st.text(max_size=8), st.text("ab*[]?.", max_size=8))
def test_star_in_a_pattern_matches_any_text(name: str, pattern: str) -> None:
    stars = re.compile(re.escape(pattern).replace(r"\*", "(?s:.)*"))
    assert matches(pattern, name) == bool(stars.fullmatch(name))
    assert matches(name, name)
    assert matches("*", name)
    assert matches(f"{name}*", name + pattern)
