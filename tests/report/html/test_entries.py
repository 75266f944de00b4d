"""Every test opens, with its requests, answers and links; nothing of a stranger's is a link."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from incident_folders_made import incident, written
from markupsafe import Markup

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.incidents import write as incidents_write
from pytest_vllm_gates.report.html import exchanges, gate_pages, links, page
from pytest_vllm_gates.report.html.drawing import TextLimits
from pytest_vllm_gates.report.html.families import families
from pytest_vllm_gates.report.html.sections import Lanes
from report.documents import HOSTILE, REJECT, load
from report.html.test_page import Reader, checked

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = TextLimits()
STREAM = b"".join(
    b"data: " + json.dumps(chunk).encode() + b"\n\n"
    for chunk in (
        {"choices": [{"index": 0, "delta": {"content": "The sea "}}]},
        {"choices": [{"index": 0, "delta": {"content": "is wide."}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    )
)


def sent(body: bytes, answer: bytes, **more: Any) -> Sent:
    """Return one exchange."""
    return Sent(
        "POST", "/v1/chat/completions", {}, body, pieces=((0.1, answer),), status=200, **more
    )


def shown(folder: Path, *sends: Sent) -> exchanges.Exchanges:
    """Return the exchanges of an incident as the page shows them."""
    incidents_write.write(folder, "one", incident(), sends, {})
    return exchanges.of_incidents(folder, ["one"], LIMITS)


def texts(exchange: exchanges.ShownExchange) -> dict[str, str]:
    return {text.title: text.text for text in exchange.texts}


def test_every_test_of_a_run_can_be_opened() -> None:
    document = load(REJECT)
    listed, _ = families(Lanes(document), LIMITS)
    named = [
        name
        for section in listed
        for gate in section.gates
        for group in (*gate.entries, *gate.others)
        for name in group.tests
    ]
    assert sorted(named) == sorted(
        test["test"]
        for family in document["families"]
        for gate in family["gates"]
        for test in gate["tests"]
    )
    text = checked(document).text
    assert "6 tests that do not block the bundle" in text
    assert "Usage comes only where it is asked" in text


def test_tests_alike_keep_their_own_evidence() -> None:
    document = load(REJECT)
    gate = document["families"][0]["gates"][0]
    test = {**gate["tests"][0], "outcome": "FAIL", "reason": "same"}
    gate["tests"] = [
        {**test, "test": f"test_{at}[qwen3.5]", "evidence": {"seen": f"evidence {at}"}}
        for at in range(3)
    ]
    text = checked(document).text
    assert "2 more tests with this outcome and reason test_1[qwen3.5] seen evidence 1" in text
    assert "seen evidence 2" in text


def test_request_and_answer_are_laid_out(tmp_path: Path) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'
    found = shown(tmp_path, sent(body, b'{"choices": []}'))
    (exchange,) = found.shown
    assert exchange.title == "1: POST /v1/chat/completions, 200"
    assert texts(exchange) == {
        "Request": json.dumps(json.loads(body), indent=2),
        "Answer": '{\n  "choices": []\n}',
    }


def test_a_stream_is_put_together_and_kept_as_it_came(tmp_path: Path) -> None:
    (exchange,) = shown(tmp_path, sent(b"{}", STREAM + b"data: [DONE]\n\n")).shown
    found = texts(exchange)
    assert found["Answer, joined"] == (
        "choices[0].index: 0\nchoices[0].delta.content: The sea is wide.\n"
        "choices[0].finish_reason: stop"
    )
    assert found["Answer, event by event (3)"].startswith("data: {")


def test_text_that_is_not_json_is_shown_unchanged(tmp_path: Path) -> None:
    (exchange,) = shown(tmp_path, sent(b"no json", b"Internal Error \xff", error="reset")).shown
    assert texts(exchange) == {
        "Request": "no json", "Answer": "Internal Error \ufffd", "How it ended": "reset",
    }  # fmt: skip


def test_of_many_requests_some_are_shown(tmp_path: Path) -> None:
    found = shown(tmp_path, *(sent(b"{}", b"{}", name=str(at)) for at in range(20)))
    assert (len(found.shown), found.left_out) == (exchanges.SHOWN, 20 - exchanges.SHOWN)


def test_a_damaged_incident_shows_nothing(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "incident.json").write_text("{}")
    assert exchanges.of_incidents(tmp_path, [folder.name, "nowhere"], LIMITS).shown == ()
    assert exchanges.of_incidents(None, ["one"], LIMITS).shown == ()


def test_an_incidents_requests_are_on_the_page(tmp_path: Path) -> None:
    document = load(REJECT)
    folder = written(tmp_path / "incidents")
    document["incidents"][0]["path"] = f"incidents/{folder.name}"
    html = page.compose(document, folder=tmp_path)
    text = Reader(html).text
    assert "Requests and answers 1: POST /v1/chat/completions, 200 Request" in text
    assert '"role": "user"' in text


def test_a_failures_request_is_laid_out() -> None:
    request = exchanges.of_reason('why\n  asked with: {"a": [1], "b": "é"}\nother: no')
    assert request and request.text == '{\n  "a": [\n    1\n  ],\n  "b": "é"\n}'
    assert exchanges.of_reason('why\n  asked with: {"a": "cut…') is None
    assert exchanges.of_reason("why") is None


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_answers_are_text(tmp_path: Path, text: str) -> None:
    data = json.dumps({"choices": [{"delta": {"content": text}}]}).encode()
    raw = text.encode("utf-8", "replace")
    incidents_write.write(
        tmp_path, "one", incident(),
        [sent(raw, b"data: " + data + b"\n\n"), sent(data, raw, name="2")], {},
    )  # fmt: skip
    document = load(REJECT)
    document["incidents"][0]["path"] = "one"
    reader = Reader(page.compose(document, folder=tmp_path))
    assert reader.open == []
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("h1") == 1
    assert tags.count("script") == 1
    assert "img" not in tags
    assert "Requests and answers" in reader.text


def test_known_defects_link_to_their_issue() -> None:
    reader = checked(load(REJECT))
    targets = [attributes.get("href") for tag, attributes in reader.tags if tag == "a"]
    assert "https://github.com/vllm-project/vllm/issues/51641" in targets
    assert "https://github.com/vllm-project/vllm/issues/57725" in targets


def plainly(text: str) -> str:
    return text


LINK = '<a href="https://github.com/{0}/issues/{1}" rel="noreferrer">{0}#{1}</a>'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a<b> (own/er#1)", f"a&lt;b&gt; ({LINK.format('own/er', 1)})"),
        ("see vllm-project/vllm#12.", f"see {LINK.format('vllm-project/vllm', 12)}."),
        ("../x#1 a/../b#2 a/b#x http://a/b#1", "../x#1 a/../b#2 a/b#x http://a/b#1"),
        ("", ""),
    ],
)
def test_only_issues_are_links(text: str, html: str) -> None:
    linked = links.with_issues(text, plainly)
    assert isinstance(linked, Markup)
    assert linked == html


def booted(log: str, name: str = "qwen3.5") -> dict[str, Any]:
    return {"name": name, "boot": {"ok": True, "evidence": {"log": log}}}


def test_server_log_is_linked_where_it_goes_with_the_report(tmp_path: Path) -> None:
    log = tmp_path / "report" / "qwen3.5" / "server 1.log"
    log.parent.mkdir(parents=True)
    log.write_text("up")
    report = tmp_path / "report"
    assert links.server_log(report, booted(str(log))) == "qwen3.5/server%201.log"
    # The report was copied to another machine, its log with it.
    assert (
        links.server_log(report, booted("/gone/qwen3.5/server 1.log")) == "qwen3.5/server%201.log"
    )
    assert links.server_log(None, booted(str(log))) == ""


@pytest.mark.parametrize(
    "log", ["/etc/hostname", "../outside.log", "nowhere", "", "\0", "x" * 9999]
)
def test_a_log_outside_the_report_is_not_linked(tmp_path: Path, log: str) -> None:
    report = tmp_path / "report"
    report.mkdir()
    (tmp_path / "outside.log").write_text("x")
    assert links.server_log(report, booted(log)) == ""
    assert links.server_log(report, booted(log, name="..")) == ""
    assert links.server_log(report, {"boot": None}) == ""


def test_a_log_in_a_folder_called_like_a_script_is_a_file(tmp_path: Path) -> None:
    log = tmp_path / "javascript:alert(1)" / "server.log"
    log.parent.mkdir()
    log.write_text("x")
    assert links.server_log(tmp_path, booted(str(log))) == "javascript%3Aalert%281%29/server.log"


def test_each_gate_that_ran_has_its_page() -> None:
    reader = checked(load(REJECT))
    assert "Faults that each gate catches, and how it judges" in reader.text
    assert "Requests have an exact number of tokens." in reader.text
    targets = [attributes.get("href") for tag, attributes in reader.tags if tag == "a"]
    assert sum(str(target).startswith("#about-") for target in targets) > 20


def test_a_gate_of_ones_own_has_no_page() -> None:
    assert gate_pages.pages(["mine", "../load", "", "boot", "boot"])[0].gate == "boot"
    assert len(gate_pages.pages(["mine", "../load", "", "boot", "boot"])) == 1


def test_gate_pages_have_no_styles_and_lower_headings() -> None:
    html = gate_pages.pages(["load"])[0].html
    tags = Reader(html).tags
    assert "h1" not in [tag for tag, _ in tags]
    assert "h2" not in [tag for tag, _ in tags]
    assert not [attributes for _, attributes in tags if "style" in attributes]
    assert [tag for tag, _ in tags].count("pre") == html.count('<pre tabindex="0">')
