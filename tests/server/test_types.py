"""A failed boot explains itself, and an endpoint shows what it can do."""

from __future__ import annotations

from pathlib import Path

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.server.failure import Confidence, Diagnosis, Explanation
from pytest_vllm_gates.server.types import Boot, BootTimes, Failure

DIAGNOSIS = Diagnosis(
    "MEMORY", "it is short of memory", "boot", "load", "failure", Confidence.LIKELY,
    "The cache does not fit.", ("give it more", "request less"), 7, "no memory",
)  # fmt: skip


def test_endpoint_has_a_root_and_hides_its_key() -> None:
    endpoint = Endpoint("http://127.0.0.1:1/v1", "m", "letmein")
    assert endpoint.root_url == "http://127.0.0.1:1"
    assert Endpoint("http://127.0.0.1:1", "m").root_url == "http://127.0.0.1:1"
    assert "letmein" not in repr(endpoint)


def test_a_named_failure_is_on_the_first_line() -> None:
    failure = Failure(
        "the server died\nwith 1", Path("/logs/server"), ("not shown",), "try again",
        Explanation(DIAGNOSIS),
    )  # fmt: skip
    lines = failure.explain().splitlines()
    assert lines[1] == "with 1: MEMORY, it is short of memory"
    assert lines[3] == "MEMORY (likely): it is short of memory"
    assert lines[-3:] == ["", "whole log: /logs/server", "next: try again"]
    assert "not shown" not in failure.explain()
    assert failure.brief == (
        "the server died: MEMORY (likely): it is short of memory; next: give it more"
    )


def test_a_failure_without_a_name_quotes_the_log() -> None:
    for explanation in (None, Explanation()):
        failure = Failure("the server died", excerpt=("one", "two"), explanation=explanation)
        assert failure.explain() == "the server died\n\nfrom the log:\n    one\n    two"
        assert failure.brief == "the server died"
    assert Failure("it").explain() == "it"


def test_a_renderer_generates_nothing() -> None:
    assert Boot(times=BootTimes(9.0, 12.0, 0.5)).generates
    assert not Boot(times=BootTimes(9.0, 12.0, None)).generates
    assert not Boot().generates
