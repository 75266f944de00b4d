"""An incident has the logs, metrics, prompt files and requests that a replay needs."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.client.exchange import Sent, redacted_headers
from pytest_vllm_gates.incidents import parts as incidents_parts

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Fakes
    from pytest_vllm_gates.catalog.family import Family


def sent(name: str = "a", **body: Any) -> Sent:
    return Sent("POST", "/v1/x", {}, json.dumps(body).encode(), name)


def test_a_log_is_kept_whole(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"one\ntwo\xff\n")
    data, note = incidents_parts.log(file)
    assert (gzip.decompress(data), note) == (b"one\ntwo\xff\n", "")


def test_a_long_log_keeps_its_head_and_its_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents_parts, "LOG_HEAD_BYTES", 10)
    monkeypatch.setattr(incidents_parts, "LOG_TAIL_BYTES", 20)
    file = tmp_path / "log"
    file.write_bytes(bytes(range(100)))
    data, note = incidents_parts.log(file)
    text = gzip.decompress(data)
    assert text.startswith(bytes(range(10)) + b"\n[70 bytes are left out here]\n")
    assert text.endswith(bytes(range(80, 100)))
    assert note == "the log: 70 of its 100 bytes were not kept, from the middle"


def test_an_excerpt_has_the_first_error_and_the_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    lines = [f"line {n}" for n in range(500)]
    lines[3] = "ValueError: the cause"
    file.write_text("\n".join(lines))
    text = incidents_parts.excerpt(file)
    assert "ValueError: the cause" in text
    assert text.endswith("line 499\n") and "line 421" in text and "line 300" not in text


def test_metrics_of_a_server_without_any_are_empty(fakes: Fakes) -> None:
    server = fakes()
    assert incidents_parts.metrics(Endpoint(server.base_url, "m")) == ""
    assert incidents_parts.metrics(Endpoint("http://127.0.0.1:9/v1", "m")) == ""


def test_sends_are_found_by_the_requests_of_a_case() -> None:
    request = {"messages": [{"role": "user"}], "max_tokens": 5}
    whole = sent("whole", model="m", temperature=0, seed=0, **request)
    streamed = sent("streamed", model="m", stream=True, stream_options={}, **request)
    other_sends = [sent("more", stop=["a"], **request), sent("less", max_tokens=5), sent("none")]
    requests_sent = incidents_parts.answering([whole, *other_sends, streamed], [request])
    assert [send.name for send in requests_sent] == ["whole", "streamed"]
    tuples = {"messages": ({"role": "user"},), "max_tokens": 5}
    assert incidents_parts.answering([whole], [tuples]) == [whole]
    assert incidents_parts.answering([Sent("POST", "/", {}, b"no json")], [request]) == []
    assert incidents_parts.answering([sent(model="m")], [{}]) == []


def test_seeds_are_listed_with_their_requests() -> None:
    sends = [sent(str(n), seed=0) for n in range(5)] + [sent("x", seed=7), sent("y")]
    assert incidents_parts.seeds(sends) == {"requests 0, 1, 2 and more": 0, "requests x": 7}


def test_first_sends_within_the_room_are_kept() -> None:
    sends = [sent(str(n)) for n in range(5)]
    assert incidents_parts.within(sends, 3 * sends[0].size) == sends[:3]


@pytest.fixture
def small(qwen: Family) -> Checkpoint:
    checkpoint = checkpoints_resolve.miniature(qwen)
    assert checkpoint
    return checkpoint


def test_prompt_files_that_ship_are_not_kept(small: Checkpoint, tmp_path: Path) -> None:
    copy = shutil.copytree(small.source, tmp_path / "copy")
    same = Checkpoint("miniature", str(copy))
    assert incidents_parts.prompts_of(same, small, whole=True) == {}
    assert incidents_parts.prompts_of(Checkpoint("a", "org/a"), small, whole=True) == {}


@pytest.mark.parametrize("whole", [True, False])
def test_edited_prompt_files_are_kept(whole: bool, small: Checkpoint, tmp_path: Path) -> None:
    copy = shutil.copytree(small.source, tmp_path / "copy")
    (copy / "chat_template.jinja").write_text("another")
    files = incidents_parts.prompts_of(Checkpoint("a", str(copy)), small, whole=whole)
    assert files["chat_template.jinja"] == b"another"
    assert "tokenizer.json" in files and "config.json" not in files


def test_other_tokenizer_does_not_fit_the_miniature(small: Checkpoint, tmp_path: Path) -> None:
    copy = shutil.copytree(small.source, tmp_path / "copy")
    (copy / "tokenizer.json").write_text("{}")
    checkpoint = Checkpoint("a", str(copy))
    assert incidents_parts.prompts_of(checkpoint, small, whole=False) == {}
    assert incidents_parts.prompts_of(checkpoint, small, whole=True)["tokenizer.json"] == b"{}"


def test_prompt_files_that_are_too_large_are_left_out(
    small: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents_parts, "PROMPT_FILES_BYTES", 10)
    copy = shutil.copytree(small.source, tmp_path / "copy")
    (copy / "chat_template.jinja").write_text("another")
    assert incidents_parts.prompts_of(Checkpoint("a", str(copy)), small, whole=True) == {}


def test_headers_that_may_be_secret_are_redacted() -> None:
    headers = {"Authorization": "Bearer a", "X-Api-Key": "b", "Content-Type": "c", "Cookie": "d"}
    assert redacted_headers(headers) == {
        "Authorization": "[redacted]",
        "X-Api-Key": "[redacted]",
        "Content-Type": "c",
        "Cookie": "[redacted]",
    }
