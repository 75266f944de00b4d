"""Each contestant of the detection league finds a fault and stays silent on a clean answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import ScriptedServer, Text

from benchmarks.contest import (
    asking,
    faults,
    golden,
    gsm8k,
    guidellm,
    look,
    looking,
    page,
    releases,
    smoke,
    speed,
    types,
    vendor,
    watch,
)
from benchmarks.contest.types import Look, Reference, Reply, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.scripted import ServerAnswer

FAMILY = "qwen3.5"
HERE = Path(__file__).parent
CITY = "The capital of France is Paris."


class Served(ScriptedServer):
    """A server that answers every chat alike, with a call where tools are declared."""

    def __init__(self) -> None:
        super().__init__(self._route)
        self.healthy = 200
        self.content = CITY
        self.finish_reason = "tool_calls"
        self.arguments: dict[str, Any] = {"city": "Oslo", "text": "lunch"}

    @property
    def target(self) -> Target:
        """The server as contestants look at it."""
        return Target(self.endpoint.base_url, "key", "alias", FAMILY)

    def _route(self, path: str, body: Any) -> ServerAnswer:
        if path == "/health":
            return self.healthy, Text("")
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "alias", "object": "model"}]}
        usage = {"prompt_tokens": 1, "completion_tokens": 112, "total_tokens": 113}
        if body.get("stream"):
            return 200, [{"id": "1", "choices": [], "usage": usage}]
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        finish_reason = "stop"
        if tools := body.get("tools"):
            call = {"name": tools[0]["function"]["name"], "arguments": json.dumps(self.arguments)}
            message["tool_calls"] = [{"id": "1", "type": "function", "function": call}]
            finish_reason = self.finish_reason
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        return 200, {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}


def looks_after(change: Callable[[Served], None]) -> dict[str, Look]:
    """Record a clean server, change it, and return what each contestant says."""
    with running(Served()) as server:
        reference = look.record(server.target, speeds=0)
        change(server)
        return look.look(server.target, reference)


def test_nobody_alarms_on_a_clean_server() -> None:
    looks = looks_after(lambda _: None)
    assert {name for name, one in looks.items() if one.found} == set()
    assert looks[types.GUIDELLM].found is None
    assert looks[types.GOLDEN].requests > 20


def not_healthy(server: Served) -> None:
    server.healthy = 503


def another_city(server: Served) -> None:
    server.content = "The capital of France is Rome."


def another_word_before(server: Served) -> None:
    server.content = "Sure. " + CITY


def no_call_is_reported(server: Served) -> None:
    server.finish_reason = "stop"


def wrong_arguments(server: Served) -> None:
    server.arguments = {"city": 7}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (not_healthy, {types.HEALTH}),
        (another_city, {types.SMOKE, types.GOLDEN, types.GSM8K}),
        (another_word_before, {types.GOLDEN}),
        (no_call_is_reported, {types.VENDOR}),
        (wrong_arguments, {types.GOLDEN, types.VENDOR}),
    ],
)
def test_contestants_find_what_they_look_at(
    change: Callable[[Served], None], found: set[str]
) -> None:
    looks = looks_after(change)
    assert {name for name, one in looks.items() if one.found} == found


def test_without_a_reference_only_two_look() -> None:
    with running(Served()) as server:
        looks = look.look(server.target, None)
    assert {name for name, one in looks.items() if one.found is not None} == {
        types.HEALTH,
        types.SMOKE,
    }


def test_a_server_that_does_not_come_up_is_found_by_all() -> None:
    assert all(one.found for one in look.nothing_answers("no server").values())


def test_a_dead_server_is_found_soon() -> None:
    with running(Served()) as server:
        target = server.target
        reference = look.record(target, speeds=0)
    looks = look.look(target, reference)
    found = {name for name, one in looks.items() if one.found}
    assert found == {types.HEALTH, types.SMOKE, types.GOLDEN, types.GSM8K, types.VENDOR}
    assert looks[types.GOLDEN].requests < 5


def test_a_refused_question_has_no_golden_answer() -> None:
    refused = {"plain": Reply("BadRequestError: no", finish_reason=golden.REFUSED)}
    assert golden.judge({"plain": Reply("another")}, refused) == (False, "")


CALLED, STOPPED = Reply("", "", vendor.CALLED, True), Reply("", "", "stop")


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    reference = {"a": CALLED, "b": CALLED, "c": STOPPED, "d": STOPPED}
    ours = {"a": CALLED, "b": STOPPED, "c": CALLED, "d": STOPPED}
    precision, recall = 1 / 2, 1 / 2
    assert vendor.f1(ours, reference) == 2 * precision * recall / (precision + recall)
    assert vendor.f1(reference, reference) == 1
    assert vendor.f1({"c": STOPPED}, {"c": STOPPED}) is None


def test_schema_accuracy_counts_answers_that_end_in_calls() -> None:
    assert vendor.schema_accuracy({"a": CALLED, "b": Reply("", "", vendor.CALLED, False)}) == 0.5
    assert vendor.schema_accuracy({"a": STOPPED}) is None


def test_gsm8k_has_the_standard_error_of_its_size() -> None:
    assert gsm8k.QUESTIONS == 1319
    assert gsm8k.standard_error(0.5) == pytest.approx(0.5 / 1319**0.5)
    assert gsm8k.matched("so 1,204 apples, or 12.5 a day.") == "12.5"
    assert gsm8k.matched("It is Paris.") == "paris"


def test_gsm8k_finds_a_loss_above_two_standard_errors() -> None:
    recorded = {str(number): Reply("", f"it is {number}") for number in range(100)}
    few, many = dict(recorded), dict(recorded)
    few |= {str(number): Reply("", "it is x") for number in range(3)}
    many |= {str(number): Reply("", "it is x") for number in range(5)}
    assert gsm8k.judge(few, recorded)[0] is False
    assert gsm8k.judge(many, recorded)[0] is True


NIGHTS = [100.0, 101.0, 99.0, 100.0, 101.0, 99.0, 100.0]


@pytest.mark.parametrize(
    ("value", "nightly", "fixed"),
    [(100.0, False, False), (98.8, False, False), (97.0, True, False), (90.0, True, True)],
)
def test_the_two_rules_of_speed(value: float, nightly: bool, fixed: bool) -> None:
    assert speed.nightly(value, NIGHTS)[0] is nightly
    assert speed.fixed(value, NIGHTS)[0] is fixed


def test_the_nightly_rule_wants_seven_nights() -> None:
    assert speed.nightly(1.0, NIGHTS[1:])[0] is None


def test_speed_is_measured_in_streams_of_completions() -> None:
    with running(Served()) as server:
        value, requests = speed.measure(server.target)
    assert value > 0
    assert requests == speed.REQUESTS
    sent = [request for request in server.requests_seen if request.data]
    assert {request.path for request in sent} == {"/v1/completions"}
    assert all(request.body["stream"] for request in sent)


def test_guidellm_counts_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "guidellm"
    report = '{"benchmarks": [{"request_totals": {"errored": 3}}]}'
    program.write_text(
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n"
        f"[ $1 = --output ] && printf '%s' '{report}' > ${{2##*path=}}\nshift\ndone\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv(guidellm.PROGRAM, str(program))
    target = Target("http://127.0.0.1:9/v1", None, "alias", FAMILY)
    assert guidellm.judge(target, "tokenizer")[:2] == (True, "3 requests failed")
    assert guidellm.errored({"benchmarks": [{"errored": 0}]}) == 0


def test_key_is_not_printed() -> None:
    assert "secret" not in repr(Target("http://127.0.0.1/v1", "secret", None, FAMILY))


def test_a_reference_is_read_as_it_was_written(tmp_path: Path) -> None:
    reference = Reference({"plain": Reply("a", "b", "stop", None)}, [1.0])
    file = tmp_path / "references.json"
    file.write_text(json.dumps({FAMILY: reference.record()}))
    assert looking.recorded(file, FAMILY) == reference
    assert looking.recorded(file, "glm") is None
    assert looking.recorded(tmp_path / "none", FAMILY) is None


def entry(number: int, kind: str, server: str = faults.SHARED) -> faults.Entry:
    return faults.Entry(f"{kind}{number}", kind, server, kind)


def test_of_each_class_so_many_are_played_once() -> None:
    entries = [entry(number, kind) for kind in ("stop", "tools") for number in range(3)]
    entries.append(entry(9, "images", "qwen3-vl"))
    planned = {"server": faults.SHARED, "kinds": [], "per_kind": 2, "played": ["stop0"]}
    assert watch.choose(entries, planned) == {"stop1", "tools0", "tools1"}
    assert watch.choose(entries, {**planned, "kinds": ["stop"]}) == {"stop1"}


def test_every_played_test_is_in_its_file() -> None:
    folder = HERE / "faults"
    text = "".join((folder / name).read_text(encoding="utf-8") for name in faults.FILES)
    known = set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
    assert known >= faults.FAULTY | faults.INNOCENT
    assert {file.name for file in folder.glob("test_*.py")} == {*faults.FILES, *faults.NOT_PLAYED}


def line(name: str, *, found: bool, golden_found: bool | None) -> dict[str, Any]:
    return {
        "what": "fault",
        "id": name,
        "kind": "stop",
        "suite": {"found": found, "why": "E   assert {'stop', 'tools'} == {'tools'}"},
        "looks": {types.GOLDEN: {"found": golden_found}},
        "at": "2026-11-28T00:00:00+00:00",
        "commit": "abc",
    }


def test_the_page_counts_the_last_try_of_each_fault() -> None:
    lines = [
        line("a", found=False, golden_found=False),
        line("a", found=True, golden_found=True),
        line("b", found=False, golden_found=None),
    ]
    text = page.page(lines, Path("league.jsonl"), [100.0, 90.0, 89.0])
    assert "| stop | 1/2 | 1/1 |" in text
    assert "2 faults of a real vLLM server" in text
    assert "- `b`: red, by stop, tools; found by: nobody" in text
    assert "Measured 2026-11-28 on" in text
    assert "at commit abc" in text
    assert "the fixed 5 % rule alarms 1 of 2 times" in text
    assert "Not played yet: template, reasoning, tools, structured," in text
    (absent,) = [each for each in text.splitlines() if each.startswith("Not played yet")]
    assert "speculation" not in absent
    assert "Not played, speculation: its faults," in text


def test_the_atlas_names_the_shipped_release() -> None:
    assert releases.shipped() == "0.32.0"
    assert releases.defects({"boot": "", "tests": {}}) == 0
    assert releases.defects({"boot": "it ended", "tests": {}}) == 1


def test_questions_are_those_that_the_family_can_have() -> None:
    target = Target("http://127.0.0.1/v1", None, None, FAMILY)
    family = asking.family_of(target)
    plain, tools = (asking.questions(family, tools=has) for has in (False, True))
    assert plain.keys() | tools.keys() == asking.questions(family).keys()
    assert all(body["tools"] for body in tools.values())
    assert smoke.PROMPT in str(plain["plain"])
