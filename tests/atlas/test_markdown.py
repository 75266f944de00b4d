"""The page begins with the faults that begin or end, and no text breaks its tables."""

from __future__ import annotations

from atlas.made_runs import made
from pytest_vllm_gates.atlas import markdown, rows
from pytest_vllm_gates.atlas.types import AtlasFinding, AtlasTest

GONE = AtlasTest(
    "tools", "types", "FAIL", (AtlasFinding("a|b", "x is <b>gone</b> | for_ever"),),
    complete=True, requests={"a|b": '{"a": "|"}'},
)  # fmt: skip
DRIFT = AtlasTest(
    "contracts", "routes_are_served", "FAIL", (AtlasFinding("", "/v1/x is gone"),), drift=True
)
KNOWN = AtlasTest("stop", "ends", "KNOWN", known=("It is lost (vllm-project/vllm#7)",))
AGAIN = AtlasTest("tools", "agrees", "KNOWN", known=KNOWN.known)
RUNS = [
    made("0.29.0", KNOWN, AGAIN, AtlasTest("tools", "types", "PASS")),
    made("0.30.0", KNOWN, AGAIN, GONE, DRIFT, AtlasTest("boot", "x", "BLOCKED")),
    made("0.30.0", boot="no such flag", family="glm"),
]


def page() -> str:
    return markdown.page(RUNS, rows.of_runs(RUNS, {}))


def test_sections_begin_with_changing_faults() -> None:
    heads = [line for line in page().splitlines() if line.startswith("## ")]
    assert heads == [
        "## Runs",
        "## Begins or ends between two releases",
        "## In every release that was run",
        "## Families that do not boot",
        "## Contracts that drift",
    ]


def test_runs_are_counted_by_outcome() -> None:
    counts = "| qwen3.5 | 1 right, 2 known, 0 fails | 0 right, 2 known, 2 fails, 1 not seen |"
    assert counts in page()
    assert "| glm | not run | does not boot |" in page()


def test_row_has_its_request_and_nothing_that_breaks_the_table() -> None:
    line = next(line for line in page().splitlines() if "tools, `types`" in line)
    assert line == (
        r"| tools, `types` | x is \<b\>gone\</b\> \| for\_ever | qwen3.5 | "
        r"right up to 0.29.0, fails in 0.30.0 | a\|b: `{"
        r'"a": "\|"}` |  |'
    )


def test_known_defect_that_several_checks_show_is_one_line_with_its_issue() -> None:
    text = "stop, `ends`; tools, `agrees`"
    runs = [made("0.29.0", KNOWN, AGAIN)]
    (line,) = [each for each in markdown.page(runs, rows.of_runs(runs, {})).splitlines()
               if text in each]  # fmt: skip
    assert "It is lost (vllm-project/vllm\\#7)" in line


def test_issues_are_links() -> None:
    assert markdown.linked("seen in vllm-project/vllm#7, a_b") == (
        r"seen in [vllm#7](https://github.com/vllm-project/vllm/issues/7), a\_b"
    )


def test_page_without_runs() -> None:
    assert "No run is kept yet." in markdown.page([], [])


def test_document_has_every_row_with_its_states() -> None:
    document = markdown.document(RUNS, rows.of_runs(RUNS, {}))
    assert document["releases"] == ["0.29.0", "0.30.0"]
    row = next(each for each in document["rows"] if each["check"] == "types")
    assert row["states"] == {"0.29.0": "right", "0.30.0": "wrong"}
    assert row["changes"] == [["0.29.0", "0.30.0"]]
    assert row["request"] == '{"a": "|"}'


def test_row_without_a_case_has_the_command_that_shows_it() -> None:
    assert "`pytest --model qwen3.5 -m contracts -k routes_are_served`" in page()
