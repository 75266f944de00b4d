"""`vllm-gates shadow`: what it refuses, and what it does with a recorded trace."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from shadow.shadow_servers import CHAT, Chats

from pytest_vllm_gates.cli import shadow as shadow_command
from pytest_vllm_gates.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--canary", "http://a"], "--stable URL is missing"),
        (
            ["--canary", "a:1", "--stable", "http://a"],
            "--canary: expected a URL like http://127.0.0.1:8000, got 'a:1'",
        ),
        (
            ["--canary", "http://a", "--stable", "a"],
            "--stable: expected a URL like http://127.0.0.1:8000, got 'a'",
        ),
        (["--canary", "http://a:1x", "--stable", "http://a"], "'http://a:1x' is not a URL"),
        (
            ["--canary", "http://a", "--stable", "http://b", "--canary-key-env", "NO_SUCH"],
            "$NO_SUCH is not set",
        ),
        (
            ["--canary", "http://a", "--stable", "http://localhost:8080/v1"],
            "--stable http://localhost:8080/v1 is the address of the shadow itself",
        ),
    ],
)
def test_invalid_options_are_refused(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shadow", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--listen", "here"), ("--listen", "1:99999"), ("--share", "0"), ("--share", "1.5"),
        ("--pairs", "0"), ("--minutes", "no"), ("--waiting", "-1"), ("--alpha", "nan"),
        ("--redact-prompts", "some"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["shadow", "--canary", "http://a", option, value])
    assert ended.value.code == 2
    assert option in capsys.readouterr().err


def test_a_missing_library_is_named_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shadow_command, "find_spec", lambda _: None)
    assert main(["shadow", "--canary", "http://a", "--stable", "http://b"]) == 2
    assert "pip install 'pytest-vllm-gates[shadow]'" in capsys.readouterr().err


def test_other_commands_import_nothing_of_it() -> None:
    program = (
        "import sys; from pytest_vllm_gates.cli.main import parser; parser(); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    names = done.stdout.split()
    assert "pytest_vllm_gates.cli.shadow" in names
    # `openai` imports aiohttp itself where it is installed.
    assert not [name for name in names if name.startswith("pytest_vllm_gates.shadow")]


def test_a_port_that_is_taken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(Chats()) as server, running(Chats()) as other:
        port = str(other.server_port)
        words = ["--canary", server.url, "--stable", server.url, "--control", "0"]
        assert main(["shadow", *words, "--listen", port]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def har(folder: Path, answers: int, **more: str) -> Path:
    """Write a HAR file of so many chats with recorded answers."""
    body = {"model": "m", "messages": [{"role": "user", "content": "How is it?"}], **more}
    message = {"role": "assistant", "content": "It is cold today in Oslo."}
    answer = {
        "id": "a", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10},
    }  # fmt: skip
    entry = {
        "request": {
            "method": "POST", "url": f"http://there{CHAT}", "postData": {"text": json.dumps(body)},
            "headers": [{"name": "Authorization", "value": "Bearer mine"}],
        },
        "response": {
            "status": 200, "content": {"text": json.dumps(answer)},
            "headers": [{"name": "Content-Type", "value": "application/json"}],
        },
    }  # fmt: skip
    path = folder / "trace.har"
    path.write_text(json.dumps({"log": {"entries": [entry] * answers}}))
    return path


def shadowed(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Shadow a trace; return the exit status and the document."""
    out = folder / "shadow.json"
    ports = ["--control", "0", "--json", str(out), "--out", str(folder / "incidents")]
    status = main(["shadow", *words, *ports])
    return status, json.loads(out.read_text())


def test_recorded_answers_are_compared_with_the_canarys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(har(tmp_path, 6))
    with running(Chats("leaks")) as canary:
        status, document = shadowed(tmp_path, "--from", trace, "--canary", canary.url)
        assert all("mine" not in str(headers) for _, _, headers, _ in canary.seen)
    assert status == 1
    assert document["stable"] == "recorded"
    assert document["pairs"] == 6
    assert [figure["name"] for figure in document["figures"]] == ["tokens"]
    printed = capsys.readouterr().out
    assert "REJECT after 6 pairs\n  markers: the canary alone fails" in printed


def test_a_request_that_needs_the_recording_servers_state_is_not_sent(tmp_path: Path) -> None:
    trace = str(har(tmp_path, 2, previous_response_id="r"))
    with running(Chats()) as canary:
        _, document = shadowed(tmp_path, "--from", trace, "--canary", canary.url)
        assert canary.seen == []
    reasons = document["traffic"]["not_mirrored"]
    assert reasons == {"it needs state that only the stable server has": 2}


def test_a_trace_is_sent_to_both_sides(tmp_path: Path) -> None:
    trace = str(har(tmp_path, 4))
    with running(Chats()) as stable, running(Chats()) as canary:
        status, document = shadowed(
            tmp_path, "--from", trace, "--canary", canary.url, "--stable", stable.url
        )
        assert len(stable.seen) == len(canary.seen) == 4
    assert status == 6
    assert document["pairs"] == 4
    assert min(kind["until_promote"] for kind in document["kinds"]) > 496
    assert not (tmp_path / "incidents").exists()


def test_a_trace_without_answers_needs_a_stable_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"model": "m", "messages": []}')
    assert main(["shadow", "--canary", "http://a", "--from", str(body)]) == 2
    assert "1 requests of" in capsys.readouterr().err
