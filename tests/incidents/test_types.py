"""An incident's records of a request, and of the lane that served it."""

from __future__ import annotations

from pytest_vllm_gates.client.exchange import Sent, redacted_headers
from pytest_vllm_gates.incidents.types import ServedLane, schema
from pytest_vllm_gates.redaction.values import REDACTED


def test_only_harmless_headers_keep_their_values() -> None:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer x", "X-Own": "y"}
    assert redacted_headers(headers) == {
        "Content-Type": "application/json", "Authorization": REDACTED, "X-Own": REDACTED,
    }  # fmt: skip


def test_size_of_a_send_counts_its_kept_bytes() -> None:
    sent = Sent("POST", "/v1", {}, b"12345", pieces=((0.1, b"abc"), (0.2, b"de")))
    assert sent.answer == b"abcde"
    assert sent.size == 5 + 5 + 2 * 128 + 1024


def test_lane_form_decides_how_its_server_is_judged() -> None:
    lane = ServedLane(
        name="cpu", title="t", form="lock", env={}, serve={"seed": 1}, overlay=(),
        batch_invariant=True, load={"users": [1]}, throughput={"blocks": 2},
    )  # fmt: skip
    assert lane.judging == {
        "batch_invariant": True, "load": {"users": [1]}, "throughput": {"blocks": 2},
    }  # fmt: skip


def test_the_schema_names_its_version() -> None:
    document = schema()
    assert document["$id"] == "urn:pytest-vllm-gates:incident:1"
    assert {"format", "family", "lane", "sends"} <= document["properties"].keys()
