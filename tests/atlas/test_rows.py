"""Releases are compared fault by fault; an unjudged fault is never right."""

from __future__ import annotations

from typing import Any

from atlas.made_runs import made
from pytest_vllm_gates.atlas import rows, spans
from pytest_vllm_gates.atlas.types import AtlasFinding, AtlasKind, AtlasRun, AtlasTest
from pytest_vllm_gates.catalog.known_defects import KnownDefect

DEFECT = KnownDefect(
    check="types",
    what="null becomes text",
    versions=">=0.30,<0.34",
    reference="vllm-project/vllm#7",
    shows="is 'None'",
    when={"tools": ("auto",)},
)
KNOWN = AtlasTest("tools", "types", "KNOWN", known=("null becomes text (vllm-project/vllm#7)",))


def failing(says: str, case: str = "tools auto", **rest: Any) -> AtlasTest:
    return AtlasTest("tools", "types", "FAIL", (AtlasFinding(case, says),), complete=True, **rest)


def outcome(name: str) -> AtlasTest:
    return AtlasTest("tools", "types", name)


def told(*runs: AtlasRun) -> dict[str, str]:
    found = rows.of_runs(runs, {"qwen3.5": [DEFECT], "glm": [DEFECT]})
    return {row.what: spans.words(row.states) for row in found}


def test_failure_before_the_listed_versions_is_the_same_defect() -> None:
    found = told(
        made("0.28.0", outcome("PASS")),
        made("0.29.0", failing("city is 'None', not null")),
        made("0.30.0", KNOWN),
    )
    assert found == {"null becomes text": "right up to 0.28.0, fails 0.29.0 to 0.30.0"}


def test_failure_of_other_traits_is_another_fault() -> None:
    found = told(
        made("0.29.0", failing("city is 'None', not null", case="tools required")),
        made("0.30.0", KNOWN),
    )
    assert found == {
        "null becomes text": "right up to 0.29.0, fails in 0.30.0",
        "city is 'None', not null": "fails in 0.29.0, right since 0.30.0",
    }


def test_unjudged_test_is_never_right() -> None:
    for name in ("BLOCKED", "MISSING", "INCONCLUSIVE", "N/A", "WAIVED"):
        found = told(made("0.29.0", outcome(name)), made("0.30.0", KNOWN))
        assert found == {"null becomes text": "fails in 0.30.0; not seen: 0.29.0"}
    found = told(made("0.29.0"), made("0.30.0", KNOWN))
    assert found == {"null becomes text": "fails in 0.30.0; not seen: 0.29.0"}


def test_cut_failure_hides_other_faults() -> None:
    cut = AtlasTest("tools", "types", "FAIL", (AtlasFinding("a", "gone"),), complete=False)
    found = told(made("0.29.0", cut), made("0.30.0", KNOWN))
    assert found["null becomes text"] == "fails in 0.30.0; not seen: 0.29.0"


def test_same_sentence_with_other_values_is_one_row_with_its_request() -> None:
    (row,) = rows.of_runs(
        [
            made("0.29.0", failing("3 of 4 are gone", requests={"tools auto": '{"n": 1}'})),
            made("0.30.0", failing("2 of 4 are gone", requests={"tools auto": '{"n": 2}'})),
            made("0.31.0", outcome("PASS")),
        ],
        {},
    )
    assert (row.what, row.request, row.case) == ("2 of 4 are gone", '{"n": 2}', "tools auto")
    assert row.changes == (("0.30.0", "0.31.0"),)
    assert not row.listed


def test_faults_with_equal_states_are_one_row() -> None:
    both = (AtlasFinding("a", "gone"), AtlasFinding("b", "late"))
    test = AtlasTest("tools", "types", "FAIL", both, complete=True)
    assert list(told(made("0.29.0", test), made("0.30.0", outcome("PASS")))) == ["gone"]
    late = AtlasTest("tools", "types", "FAIL", both[1:], complete=True)
    assert {*told(made("0.29.0", test), made("0.30.0", late))} == {"gone", "late"}


def test_family_that_does_not_boot_is_one_row_and_its_checks_are_not_seen() -> None:
    found = told(made("0.28.0", boot="no such flag"), made("0.29.0", KNOWN))
    assert found == {
        "no such flag": "fails in 0.28.0, right since 0.29.0",
        "null becomes text": "fails in 0.29.0; not seen: 0.28.0",
    }


def test_families_with_the_same_fault_are_one_row() -> None:
    runs = [made("0.30.0", KNOWN), made("0.30.0", KNOWN, family="glm")]
    (row,) = rows.of_runs(runs, {"qwen3.5": [DEFECT], "glm": [DEFECT]})
    assert row.families == ("qwen3.5", "glm")
    assert row.reference == "vllm-project/vllm#7"


def test_drifting_contracts_are_separate_from_wrong_answers() -> None:
    (row,) = rows.of_runs([made("0.30.0", failing("/v1/x is gone", drift=True))], {})
    assert row.kind is AtlasKind.DRIFT


def test_latest_run_of_a_release_counts() -> None:
    newer = made("0.30.0", outcome("PASS"), day=27)
    assert told(newer, made("0.30.0", KNOWN, day=26)) == {}


def test_removed_defect_keeps_its_words() -> None:
    (row,) = rows.of_runs([made("0.30.0", KNOWN)], {})
    assert row.what == KNOWN.known[0]
    assert row.listed


def test_sentence_that_names_its_case_fits_a_pattern_that_is_anchored() -> None:
    anchored = DEFECT.model_copy(update={"shows": "^city is"})
    cut = AtlasTest("tools", "types", "FAIL", (AtlasFinding("", "tools auto: x: city is 'None'"),))
    (row,) = rows.of_runs([made("0.29.0", cut)], {"qwen3.5": [anchored]})
    assert row.what == "null becomes text"


def test_fault_is_not_seen_where_all_its_cases_are_wrong_in_another_way() -> None:
    other = failing("the server fails", case="text-after")
    later = failing("is lost", case="text-after")
    found = told(made("0.29.0", other), made("0.30.0", later))
    assert found == {
        "the server fails": "fails in 0.29.0; not seen: 0.30.0",
        "is lost": "fails in 0.30.0; not seen: 0.29.0",
    }


def test_requests_after_a_known_end_of_the_server_are_not_separate_faults() -> None:
    fatal = DEFECT.model_copy(update={"shows": "EngineCore encountered", "what": "it ends"})
    ended = AtlasTest(
        "tools", "types", "FAIL",
        (AtlasFinding("tools auto", "500: EngineCore encountered an issue"),
         AtlasFinding("later", "500: EngineCore encountered an issue")),
    )  # fmt: skip
    dead = AtlasTest("tools", "rare", "FAIL", (AtlasFinding("", "the server died while serving"),))
    (row,) = rows.of_runs([made("0.28.0", ended, dead)], {"qwen3.5": [fatal]})
    assert row.what == "it ends"
    assert len(rows.of_runs([made("0.28.0", ended, dead)], {})) == 2
