"""Importers read requests as they were sent, and run nothing of what they read."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.importers import (
    curl,
    har,
    openai_batch,
    openai_log,
    sources,
    vllm_log,
)
from pytest_vllm_gates.incidents.importers.vllm_log import arguments_at, value_at

if TYPE_CHECKING:
    from pathlib import Path

BODY = {"model": "qwen3.5", "messages": [{"role": "user", "content": 'It\'s "é" 100% & more;\n'}]}
URL = "http://127.0.0.1:8000/v1/chat/completions"
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.parametrize(
    "command",
    [
        f"curl {URL} -H 'Content-Type: application/json' -d {quoted(json.dumps(BODY))}",
        f"$ curl -sSN -XPOST \\\n  --url {URL} \\\n --data-raw {quoted(json.dumps(BODY))} | jq .",
        f"/usr/bin/curl {URL} --json {quoted(json.dumps(BODY))} > out 2>&1; rm -rf /",
        f'curl "{URL}" -H "Authorization: Bearer $KEY" --data {quoted(json.dumps(BODY))}',
        f"curl -u me:pass {URL} --compressed --max-time 5 -d@body.json",
        f"curl {URL} --data-binary @body.json",
    ],
)
def test_curl_command_is_read_like_a_shell_reads_it(tmp_path: Path, command: str) -> None:
    (tmp_path / "body.json").write_text(json.dumps(BODY))
    (sent,) = curl.requests(command, tmp_path)
    assert (sent.method, sent.path) == ("POST", "/v1/chat/completions")
    assert json.loads(sent.body) == BODY
    assert "pass" not in str(sent.headers)


def test_the_exact_bytes_are_kept(tmp_path: Path) -> None:
    body = '{"model":  "m",\t"messages": [ ]}'
    assert curl.requests(f"curl {URL} -d '{body}'", tmp_path)[0].body == body.encode()
    (tmp_path / "b").write_bytes(body.encode() + b"\r\n")
    assert curl.requests(f"curl {URL} -d @b", tmp_path)[0].body == body.encode()
    kept_body = curl.requests(f"curl {URL} --data-binary @b", tmp_path)[0].body
    assert kept_body == body.encode() + b"\r\n"
    ansi = (
        "curl http://h/proxy/v1/completions?x=1 -d $'{\"a\": \"\\u00e9\\x41\\101 \\'q\\' \\\\n\"}'"
    )
    (sent,) = curl.requests(ansi, tmp_path)
    assert (sent.path, json.loads(sent.body)) == ("/v1/completions?x=1", {"a": "éAA 'q' \n"})


@given(st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_any_quoted_body_is_read_as_the_shell_reads_it(
    tmp_path_factory: pytest.TempPathFactory, body: dict[str, str]
) -> None:
    text = json.dumps(body, ensure_ascii=False)
    folder = tmp_path_factory.getbasetemp()
    for form in (
        quoted(text),
        '"'
        + "".join(f"\\{character}" if character in '"\\$`' else character for character in text)
        + '"',
    ):
        assert curl.requests(f"curl {URL} -d {form}", folder)[0].body == text.encode()


def test_reading_agrees_with_a_real_shell(tmp_path: Path) -> None:
    body = json.dumps(BODY, ensure_ascii=False)
    for form in (quoted(body), "$" + quoted(body.replace("\\", "\\\\")).replace("'\\''", "\\'")):
        output = subprocess.run(
            ["bash", "-c", f"printf %s {form}"], capture_output=True, check=True
        ).stdout
        assert curl.requests(f"curl {URL} -d {form}", tmp_path)[0].body == output


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("wget http://h", "no line of it begins with curl"),
        (f"curl {URL}", "sends no data"),
        ("curl -d '{}'", "has no URL"),
        (f"curl {URL} -d '{{}}' http://other/v1/x", "has two URLs"),
        (f'curl {URL} -d \'{{"a"', "cut off or quoted wrongly"),
        (f"curl {URL} -d", "has no value"),
        (f"curl {URL} -F a=b", "curl's -F is not known here"),
        (f"curl {URL} --config x -d '{{}}'", "curl's --config is not known"),
        (f"curl {URL} -d @/etc/passwd", "only files in"),
        (f"curl {URL} -d @../b", "only files in"),
        (f"curl {URL} -d @-", "only a here-document"),
        (f"curl {URL} -d @none", "cannot be read: No such file"),
        (f'curl {URL} -d "{{\\"a\\": \\"$(id)\\"}}"', "nothing is executed here"),
        (f'curl {URL} -d "`id`"', "nothing is executed here"),
        (f"curl {URL} -d $BODY", "nothing is executed here"),
        (f"curl {URL} -d 'a=b&c=d'", "is not JSON"),
        (f"curl {URL} -d '[1]'", "not a JSON object"),
        ("curl http://h/health -d '{}'", "not a path of an OpenAI-compatible server"),
        ("", "no line of it begins with curl"),
        (
            f'curl ^"{URL}^" ^\r\n  -H ^"accept: */*^" ^\r\n  --data-raw ^"^{{^\\^"a^\\^":1^}}^"',
            "this command was copied for cmd.exe: copy it as cURL .bash.",
        ),
        (f'curl "{URL}" ^\n  --data-raw "{{\\"a\\": 1}}"', "this command was copied for cmd.exe"),
    ],
)
def test_unreadable_command_is_refused(tmp_path: Path, command: str, message: str) -> None:
    with pytest.raises(UserError, match="(?s).*" + message.replace("$", r"\$")):
        curl.requests(command, tmp_path)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="only files in"):
        curl.requests(f"curl {URL} -d @link", tmp_path / "in")


def options_line(**fields: Any) -> str:
    """Return a line as openai 1.x and 2.x log it."""
    options = repr({"method": "post", "url": "/chat/completions", "files": None, **fields})
    options = options[:-1] + ", 'timeout': Timeout(5), 'post_parser': <function f at 0x7f>}"
    return f"[2026-11-20 10:00:00 - openai._base_client:482 - DEBUG] Request options: {options}\n"


def test_openai_log_has_its_requests(tmp_path: Path) -> None:
    log = (
        "[...] something else\n"
        + options_line(headers={"X": "y"}, json_data=BODY, extra_json={"top_k": 5})
        + options_line(url="/completions", json_data={"model": "m", "prompt": "a, 'b'}"})
        + options_line(method="get", url="/models")
    )
    assert openai_log.claims(log)
    first, second = openai_log.requests(log, tmp_path)
    assert (first.path, json.loads(first.body)) == ("/v1/chat/completions", {**BODY, "top_k": 5})
    assert (second.path, json.loads(second.body)["prompt"]) == ("/v1/completions", "a, 'b'}")


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("DEBUG Building HTTP request: method=POST retries_taken=0", "openai 3 and later"),
        (options_line(json_data=BODY)[:150], "cut off"),
        ("Request options: {'json_data': __import__('os').system('id')}", "not a Python literal"),
        ("Request options: {'json_data': " + "[" * 5000 + "}", "too deep"),
    ],
)
def test_openai_log_without_bodies_is_refused(tmp_path: Path, log: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        openai_log.requests(log, tmp_path)


def archive(**changes: Any) -> dict[str, Any]:
    record = {
        "time": 250.0,
        "timings": {"wait": 240.0, "receive": 10.0},
        "request": {
            "method": "POST",
            "url": URL,
            "headers": [{"name": "Authorization", "value": "Bearer letmein"}],
            "postData": {"mimeType": "application/json", "text": json.dumps(BODY)},
        },
        "response": {
            "status": 200,
            "headers": [{"name": "content-type", "value": "application/json"}],
            "content": {"text": base64.b64encode(b"{}").decode(), "encoding": "base64"},
        },
    }
    listing = {"request": {"method": "GET", "url": "http://h/v1/models", "headers": []}}
    return {"log": {"version": "1.2", "entries": [listing, {**record, **changes}]}}


def test_a_har_file_has_requests_and_responses(tmp_path: Path) -> None:
    text = json.dumps(archive())
    assert har.claims(text)
    (sent,) = har.requests(text, tmp_path)
    assert json.loads(sent.body) == BODY
    assert (sent.status, sent.pieces) == (200, ((0.24, b"{}"),))
    assert "letmein" not in str(sent)
    (unanswered,) = har.requests(json.dumps(archive(response={"status": 0})), tmp_path)
    assert (unanswered.status, unanswered.pieces) == (None, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a HAR file, or it is cut off"),
        ('{"log": {}}', "this HAR file is not complete"),
        ('{"log": {"entries": [{}]}}', "this HAR file is not complete"),
        (
            json.dumps(
                archive(response={"status": 9, "content": {"text": "%", "encoding": "base64"}})
            ),
            "not base64",
        ),
        (json.dumps(archive(request={"method": "POST", "url": URL})), "is not JSON"),
        ("[" * 100_000, "not a HAR file"),
    ],
)  # fmt: skip
def test_damaged_har_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        har.requests(text, tmp_path)


PARAMS = (
    "SamplingParams(n=1, presence_penalty=0.0, temperature=0.7, top_p=0.9, top_k=20, seed=None, "
    "stop=['END'], stop_token_ids=[], max_tokens=16, skip_special_tokens=True, "
    "guided_decoding=GuidedDecodingParams(json={'a': 1}), extra_args=None)"
)
PROMPT = "<|im_start|>user\nIt's {[<|im_end|>\n"


def old(ids: list[int] | None) -> str:
    """Return a line as vLLM logged it until prompts went to DEBUG."""
    return (
        f"INFO 11-20 10:00:00 [logger.py:43] Received request chatcmpl-1: prompt: {PROMPT!r}, "
        f"params: {PARAMS}, prompt_token_ids: {ids}, prompt_embeds shape: None, "
        "lora_request: None.\n"
    )


NEW = "INFO [request_logger.py:65] Received request {}: params: {}, lora_request: None.\n"
JSON_BODY = "(APIServer pid=1) DEBUG [request_logger.py:73] Request {} JSON body: {}\n"
DETAILS = (
    "(APIServer pid=1) DEBUG [request_logger.py:57] Request {} details: prompt: {!r}, "
    "prompt_token_ids: {}, prompt_embeds shape: None.\n"
)


def test_old_vllm_log_has_prompt_and_parameters(tmp_path: Path) -> None:
    assert vllm_log.claims(old(None))
    (sent,) = vllm_log.requests(old(None), tmp_path)
    assert sent.path == "/v1/completions"
    body = json.loads(sent.body)
    assert body["prompt"] == PROMPT
    assert body["add_special_tokens"] is False
    assert (body["temperature"], body["stop"], body["max_tokens"]) == (0.7, ["END"], 16)
    assert "seed" not in body and "guided_decoding" not in body
    (sent,) = vllm_log.requests(old([1, 2, 3]), tmp_path)
    assert json.loads(sent.body)["prompt"] == [1, 2, 3]


def test_new_vllm_log_has_the_body(tmp_path: Path) -> None:
    log = (
        JSON_BODY.format("1a2b", json.dumps(BODY))
        + DETAILS.format("chatcmpl-1a2b", "rendered", [5])
        + NEW.format("chatcmpl-1a2b", PARAMS)
        + DETAILS.format("cmpl-9-0", "a prompt", None)
        + NEW.format("cmpl-9-0", PARAMS)
    )
    assert vllm_log.claims(log)
    chat, completion = vllm_log.requests(log, tmp_path)
    assert (chat.path, json.loads(chat.body)) == ("/v1/chat/completions", BODY)
    assert (completion.path, json.loads(completion.body)["prompt"]) == (
        "/v1/completions",
        "a prompt",
    )


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (NEW.format("chatcmpl-1", PARAMS), "only at log level DEBUG"),
        (JSON_BODY.format("1", json.dumps(BODY)[:40]), "cut off"),
        (old(None)[:90], "cannot be read"),
        (old(None).split("top_p")[0], "parameters in this log cannot be read"),
    ],
)
def test_vllm_log_without_requests_is_refused(tmp_path: Path, log: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        vllm_log.requests(log, tmp_path)


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(JSONISH, st.sampled_from([", 'more': 1}", "}", "", ", x=<f>", "\nnext"]))
def test_any_literal_is_read_up_to_its_end(value: Any, after: str) -> None:
    text = f"before {value!r}{after}"
    parsed, end = value_at(text, len("before "))
    assert parsed == value
    assert text[end:] == after


@given(st.text())
def test_text_of_a_log_is_never_evaluated(text: str) -> None:
    for parse in (value_at, arguments_at):
        try:
            parse(f"f({text}", 0)
        except ValueError:
            continue


def batch_line(name: str, **more: Any) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": name}]}
    return json.dumps(
        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body, **more}
    )


def test_a_batch_file_has_a_request_a_line(tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_text(f"\n{batch_line('a')}\n\n{batch_line('b', url='/v1/responses')}\n")
    found = sources.of_anything(str(path), None, None, None)
    assert found.kind == "openai-batch"
    assert [sent.path for sent in found.sends] == ["/v1/chat/completions", "/v1/responses"]
    assert json.loads(found.sends[0].body)["messages"][0]["content"] == "a"
    assert all(sent.status is None for sent in found.sends)


def test_a_body_that_quotes_a_batch_file_is_a_body(tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": batch_line("a")}]}))
    assert sources.of_anything(str(path), None, None, None).kind == "body"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (batch_line("a", method="DELETE"), "line 2 of this batch file: the method is 'DELETE'"),
        (batch_line("a", url=3), "line 2 of this batch file: the url is 3"),
        (batch_line("a", body=[]), "line 2 of this batch file: the body is not a JSON object"),
        ("{", "line 2 of this batch file is not JSON"),
        ("[]", "line 2 of this batch file is not a JSON object"),
    ],
)
def test_a_line_of_a_batch_file_that_cannot_be_sent_is_named(
    line: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=says):
        openai_batch.requests(f"{batch_line('b')}\n{line}\n", tmp_path)
