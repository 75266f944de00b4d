"""The findings of a failed test are read from its reason or its incident."""

from __future__ import annotations

from pytest_vllm_gates.atlas import findings
from pytest_vllm_gates.atlas.types import AtlasFinding

SEVERAL = """a client gets another value (in 3 of 6 cases)
null, whole:
  city is 'None', not null
  days is 3.0, not 3
  asked with: {"messages": [{"role": "user"}]}
nested: city is {'a': 1}, not text
deep: x: gone
If that is meant, accept it: pytest
"""
ONE = """a client gets another value (in 1 of 6 cases)
null, whole:
  city is 'None', not null
"""


def test_first_case_is_read_in_full_and_the_others_by_their_sentence() -> None:
    read = findings.of_reason(SEVERAL)
    assert read.findings == (
        AtlasFinding("null, whole", "city is 'None', not null"),
        AtlasFinding("null, whole", "days is 3.0, not 3"),
        AtlasFinding("", "nested: city is {'a': 1}, not text"),
        AtlasFinding("", "deep: x: gone"),
    )
    assert read.requests == {"null, whole": '{"messages": [{"role": "user"}]}'}


def test_only_whole_findings_are_complete() -> None:
    assert findings.of_reason(ONE).complete
    assert not findings.of_reason(SEVERAL).complete
    assert not findings.of_reason(ONE + "x" * 2000).complete
    assert not findings.of_reason("AssertionError: it died").complete


def test_another_message_is_its_first_line() -> None:
    read = findings.of_reason("\nthe server died\nof something")
    assert read.findings == (AtlasFinding("", "the server died"),)


def test_incident_has_every_finding() -> None:
    incident = {"findings": [{"case": "a", "says": "x"}, {"case": "b", "says": "y"}]}
    read = findings.of_incident(incident, SEVERAL)
    assert read.complete
    assert [finding.case for finding in read.findings] == ["a", "b"]
    assert list(read.requests) == ["null, whole"]


def test_incident_without_findings_gives_the_reason() -> None:
    assert findings.of_incident({}, ONE) == findings.of_reason(ONE)


def test_folders_of_the_machine_are_left_out_and_routes_are_kept() -> None:
    assert findings.cleaned("/v1/chat/completions, in /home/me/c/f.py") == (
        "/v1/chat/completions, in f.py"
    )
    assert findings.cleaned("see /root/.cache/env/lib/x.py:3") == "see x.py:3"


def test_same_fault_with_other_values_has_the_same_shape() -> None:
    one = findings.shape("city is 'None', 3 of 8")
    assert one == findings.shape("city is 'Nil',  4 of 8") == "city is …, N of N"
    assert one != findings.shape("town is 'None', 3 of 8")


def test_few_findings_of_one_shape_are_kept() -> None:
    many = [AtlasFinding(str(number), f"value {number}") for number in range(60)]
    other = AtlasFinding("z", "else")
    assert findings.few([*many, other]) == (*many[: findings.ALIKE], other)


def test_findings_are_not_complete_where_the_server_died() -> None:
    incident = {"findings": [{"case": "a", "says": "500: EngineCore encountered an issue"}]}
    assert not findings.of_incident(incident, SEVERAL).complete
    assert not findings.of_incident({"findings": [{"case": "a", "says": "x"}]},
                                    "the server died while serving").complete  # fmt: skip
