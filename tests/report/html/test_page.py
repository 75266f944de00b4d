"""The page shows any document's verdict, is never too large, and runs nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st

from pytest_vllm_gates.report import document as documents
from pytest_vllm_gates.report.html import page
from report.documents import HOSTILE, REJECT, THEIRS, empty, huge, load, spoilt
from report.documents.figures import with_figures

SCHEMA = jsonschema.Draft202012Validator(json.loads(documents.SCHEMA.read_text()))
OWN_SCRIPT = (page.HERE / "script.js").read_text(encoding="utf-8")
DOCS = Path(__file__).parents[3] / "docs" / "gates"
LINKED = {
    link
    for file in DOCS.glob("*.md")
    for link in re.findall(r"\((https://[^)\s]+)\)", file.read_text(encoding="utf-8"))
}
"""The addresses that the gates' pages name."""
ISSUE = re.compile(r"https://github\.com/[\w-]+/[\w.-]+/issues/\d+")
ALIVE = {"img", "iframe", "object", "embed", "link", "base", "form", "audio", "video"}
VOID = {"meta", "br", "rect", "line", "circle", "polyline", "input", "hr"}


class Reader(HTMLParser):
    """Reads a page: its tags, its text, and that every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} closes what is not open"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def checked(document: dict[str, Any], other: dict[str, Any] | None = None) -> Reader:
    """Return a page, having seen that it is small, whole, and runs nothing but its own script."""
    html = page.compose(document, other)
    assert len(html.encode()) < 2_000_000
    reader = Reader(html)
    assert reader.open == []
    assert not {tag for tag, _ in reader.tags} & ALIVE
    assert [tag for tag, _ in reader.tags].count("style") == 1
    assert reader.scripts == [OWN_SCRIPT]
    assert [attributes for tag, attributes in reader.tags if tag == "script"] == [{}]
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("href", "src"):
            target = attributes.get(name)
            outside = name == "href" and (
                target in LINKED or ISSUE.fullmatch(target or "") is not None
            )
            assert not outside or attributes.get("rel") == "noreferrer", target
            assert target in (None, "verdict.json") or outside or target[1:] in ids, target
    return reader


def test_example_documents_fit_the_schema() -> None:
    for document in (load(REJECT), load(THEIRS), empty()):
        SCHEMA.validate(document)


def test_page_has_every_part_of_the_document() -> None:
    text = checked(load(REJECT), load(THEIRS)).text
    for words in (
        "REJECT Something users would notice that works on cpu-previous is broken",
        "Go back to cpu-previous vllm-gates lane make cpu-previous",
        "glm: stop expired 2026-11-01",
        "Warning: 3 axes changed at once",
        "Unchanged: torch 2.13.0+cpu", "Not known, and so not counted as unchanged: driver",
        "Regressions 2", "Fail on both lanes 1", "Fixed 1", "Different outcomes 1", "Drift 3",
        "The server boots, answers sensibly",
        "Prompt is the recorded: assistant-last",
        "nothing for 250 ms",
        "output tokens a second: -4.3% (surely between -6.9% and -0.7%)",
        "Output tokens a second, block by block",
        "cache of 4 requests of full length",
        "the KV cache does not hold one request of full length KV_TOO_SMALL , certain",
        "Run it again pytest --model qwen3.5 --lane cpu -m streaming -k",
        "pytest --repro incidents/2026-11-22-qwen3.5-streaming-late-arguments",
        "13 gates were blocked: chat_template, isolation, load",
        "qwen3.5 TTFT p95 (ms)",
        "pytest --model qwen3.5,glm --lane cpu --against cpu-previous -m 'not soak'",
        "transformers 5.19.0", "transformers 5.17.2",
    ):  # fmt: skip
        assert words in text, words


def test_page_begins_with_verdict_reasons_and_changes() -> None:
    reader = checked(load(REJECT), load(THEIRS))
    ids = [attributes.get("id") for tag, attributes in reader.tags if tag == "section"]
    assert ids == [
        None, "why", "bundle", "against", "overview", "numbers", "family-0", "family-1", "known",
        "trends", "gates", "facts",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("promotion", "says"),
    [
        ("PROMOTE", "Every gate that applies passed: lane cpu may go into production."),
        ("HOLD", "No gate failed, but not every gate could decide: lane cpu is not proven yet"),
        ("REJECT", "Something users would notice is broken: lane cpu must not go into production"),
    ],
)
def test_verdict_is_explained_in_one_sentence(promotion: str, says: str) -> None:
    text = checked(empty(promotion)).text
    assert f"{promotion} {says}" in text
    assert "What changed" not in text


def test_gates_that_did_not_run_are_one_reason() -> None:
    document = empty()
    document["reasons"] = [
        "glm: boot is FAIL: it died", "glm: load did not run", "the run was interrupted",
        "glm: numerics did not run",
    ]  # fmt: skip
    reader = checked(document)
    assert "it died the run was interrupted glm: 2 gates did not run: load, numerics" in reader.text


def test_next_step_is_a_command() -> None:
    document = empty()
    document["next"] = ["pytest --model glm --lane cpu -m throughput --update-baseline"]
    assert f"To get PROMOTE {document['next'][0]}" in checked(document).text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_foreign_text_is_neither_markup_nor_hidden(text: str) -> None:
    document, other = (spoilt(load(name), text) for name in (REJECT, THEIRS))
    reader = checked(document, other)
    html = page.compose(document, other)
    html.encode("utf-8")
    hidden = r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    assert not re.search(hidden, html)
    assert not [tag for tag, _ in reader.tags if tag == "h1"][1:]


def test_invisible_characters_are_spelled_out() -> None:
    document = empty()
    document["reasons"] = ["a\u202eb\x00c\ud800d"]
    assert "a⟨U+202E⟩b␀c⟨U+D800⟩d" in checked(document).text


def test_only_this_style_and_this_script_are_allowed() -> None:
    reader = checked(load(REJECT))
    (policy,) = (
        str(attributes["content"])
        for tag, attributes in reader.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    digest = base64.b64encode(hashlib.sha256(OWN_SCRIPT.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    assert policy.count("sha256-") == 2


def test_a_huge_document_is_cut_with_a_note() -> None:
    text = checked(huge()).text
    assert "more failures are not shown here; verdict.json has them" in text
    assert "characters left out; verdict.json has them" in text
    assert "REJECT" in text


JUNK: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYS = ("prompt", "streams", "decision", "pairs", "blocks", "planned", "told", "against")


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(KEYS), JUNK), JUNK)
def test_any_evidence_has_a_place_on_the_page(evidence: dict[str, Any], inner: Any) -> None:
    document = empty("REJECT")
    more = {
        "prompt": {
            "runs": [inner, {"kind": inner, "token_ids": inner, "texts": inner}],
            "of": inner,
        },
        "streams": [
            inner,
            {"times_ms": inner, "sizes": inner},
            {"pieces": [inner, [inner, inner]]},
        ],
        "decision": {"changes": {"ttft_s": inner}},
        "planned": {"weights": inner, "pool": inner, "kv_memory_bytes": inner},
        "told": {"kv_gib": inner},
    }
    tests = [
        {
            "test": "test_x[a]",
            "outcome": "FAIL",
            "reason": "r",
            "duration_s": 1.0,
            "evidence": value,
        }
        for value in (evidence, more)
    ]
    gate = {"gate": "g", "outcome": "FAIL", "reason": "r", "duration_s": 1.0, "tests": tests}
    checkpoint = {"name": "m", "source": "s", "revision": None}
    document["families"] = [{"name": "a", "checkpoint": checkpoint, "boot": None, "gates": [gate]}]
    document["history"] = [
        {"created": "x", "promotion": "HOLD", "lane": "l", "versions": {}, "figures": {"f": inner}}
    ] * 3
    assert "FAIL" in checked(document).text


def test_page_is_written_whole_beside_the_document(tmp_path: Path) -> None:
    path = page.write(tmp_path / "new", empty("PROMOTE"))
    assert path == tmp_path / "new" / "report.html"
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_judged_lane_is_the_first_column_everywhere() -> None:
    document = with_figures(load(REJECT))
    html = page.compose(document, with_figures(load(THEIRS)))
    heads = re.findall(r"<thead>(.*?)</thead>", html)
    columns = [re.findall(r"<th[^>]*>([^<]*)</th>", head) for head in heads]
    both = [names for names in columns if {"cpu", "cpu-previous"} <= {*names}]
    assert len(both) >= 3, columns
    for names in both:
        assert names.index("cpu") < names.index("cpu-previous"), names
    assert re.search(r"<td><code>0\.32\.0</code></td><td><code>0\.31\.0</code>", html)


def test_page_explains_why_parts_of_a_bundle_are_unknown() -> None:
    document = load(REJECT)
    document["bundle"] |= {"unknown": ["flags"], "why": ["stable is a URL: <b>"]}
    SCHEMA.validate(document)
    assert "counted as unchanged: flags. stable is a URL: <b>" in checked(document).text


def test_first_of_many_changes_are_visible_at_once() -> None:
    document = load(REJECT)
    row = {"axis": "packages", "ours": "2", "theirs": None}
    document["bundle"]["changed"] = [{**row, "name": f"package-{at}"} for at in range(40)]
    text = checked(document).text
    assert "28 more changes The other changes" in text
    assert "package-39" in text


def test_incident_is_sent_again_by_the_command_of_the_document() -> None:
    document = load(REJECT)
    command = "pytest --repro out/incidents/late --base-url http://127.0.0.1:8000/v1"
    document["incidents"][0]["command"] = command
    assert command in checked(document, load(THEIRS)).text


def test_replay_of_an_incident_is_on_the_page() -> None:
    document = empty()
    document["repro"] = {
        "bundle": "incidents/one", "answer": "REPRODUCED", "reproduced": 3, "times": 5,
        "then": "the words", "notes": ["another lane"],
    }  # fmt: skip
    text = checked(document).text
    assert "REPRODUCED : incidents/one had the same outcome 3 of 5 times" in text
    assert "the words another lane" in text


def test_bisection_is_on_the_page_with_each_trial() -> None:
    document = empty()
    document["bisection"] = {
        "good": "stable", "bad": "canary", "certain": False, "confidence": 0.999999,
        "sentence": "the culprit is vllm 0.32.0 (last good 0.30.0), or one of 0.31.0; not certain",
        "culprits": [{"axis": "vllm", "last_good": "0.30.0", "first_bad": "0.32.0",
                      "between": ["0.31.0"], "items": []}],
        "reasons": ["not judged between the two: 0.31.0"],
        "trials": [{"bundle": "bad vllm", "number": 1, "answer": "BAD", "vllm": "0.32.0",
                    "seconds": 61.4, "why": "FAIL test_x <b>"}],
        "read": ["https://example.org/v0.32.0"], "lane": ".vllm-gates/mixed.toml",
    }  # fmt: skip
    SCHEMA.validate(document)
    text = checked(document).text
    assert "The change that makes canary bad the culprit is vllm 0.32.0" in text
    assert "Last good 0.30.0 First bad 0.32.0 Not judged between 0.31.0" in text
    assert "Confidence 99.99% by the trials" in text
    assert "bad vllm 0.32.0 BAD 61 s FAIL test_x <b>" in text
    assert "vllm-gates lane diff stable .vllm-gates/mixed.toml" in text


def test_families_need_not_have_the_same_gates() -> None:
    """One that answers and one that embeds: each gate is shown for whom it ran."""
    document = load(REJECT)
    family = document["families"][0]
    other = {**family, "name": "embeds", "gates": family["gates"][:1]}
    document["families"] = [family, other]
    reader = checked(document)
    assert reader.text.count("did not run") == len(family["gates"]) - 1
