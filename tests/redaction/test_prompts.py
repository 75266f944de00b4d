"""Prompts and answers are hashed or dropped everywhere, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.redaction.prompts import DROP, DROPPED, HASH, KEEP, MODES, Prompts
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.redaction.values import REDACTED

SAID = "Mrs Schmidt's plan"
REQUEST = {
    "model": "qwen3.5",
    "messages": [{"role": "user", "content": SAID}, {"role": "assistant", "content": None}],
    "tools": [{"type": "function", "function": {"name": "look_up", "description": SAID}}],
    "stop": [SAID],
    "max_tokens": 7,
}
STREAM = [
    b'data: {"id":"c-1","choices":[{"index":0,"delta":{"con',
    b'tent":"Mrs "}}]}\n\ndata: {"choices":[{"delta":{"content":"Schmidt"},"token_ids":[1,2]}]}\n',
    b"\ndata: [DO",
    b"NE]\n\n",
]
dropping = Prompts(DROP)


def test_keep_changes_nothing() -> None:
    keeping = Prompts(KEEP)
    body = json.dumps(REQUEST).encode()
    assert keeping.text(SAID) == SAID
    assert keeping.prose(f"asked '{SAID}'") == f"asked '{SAID}'"
    assert keeping.json(REQUEST) == REQUEST
    assert keeping.body(body) is body
    assert keeping.pieces(STREAM) == STREAM


def test_request_keeps_its_shape_and_numbers() -> None:
    assert dropping.json(REQUEST) == {
        "model": "qwen3.5",
        "messages": [
            {"role": "user", "content": DROPPED},
            {"role": "assistant", "content": None},
        ],
        "tools": [{"type": "function", "function": {"name": "look_up", "description": DROPPED}}],
        "stop": [DROPPED],
        "max_tokens": 7,
    }
    assert dropping.json({"prompt": [1, 2, 3], "prompt_token_ids": [4]}) == {
        "prompt": DROPPED, "prompt_token_ids": DROPPED,
    }  # fmt: skip
    assert dropping.body(SAID.encode()) == json.dumps(DROPPED).encode()
    assert dropping.body(b"") == b""


def test_equal_texts_have_equal_hashes_under_one_key() -> None:
    ours, theirs = Prompts(HASH, b"ours"), Prompts(HASH, b"theirs")
    assert ours.text(SAID) == ours.text(SAID) != ours.text(SAID + ".")
    assert ours.text(SAID) != theirs.text(SAID)
    assert ours.text(SAID).endswith(f", {len(SAID)} characters]")


def test_a_stream_keeps_its_pieces_and_its_events() -> None:
    clean = dropping.pieces(STREAM)
    assert len(clean) == len(STREAM)
    stream = b"".join(clean).decode()
    assert "Mrs" not in stream and "Schmidt" not in stream and "[1,2]" not in stream
    events = [line for line in stream.splitlines() if line]
    assert events[-1] == "data: [DONE]"
    assert [json.loads(line[6:])["choices"][0]["delta"]["content"] for line in events[:-1]] == [
        DROPPED, DROPPED,
    ]  # fmt: skip
    assert b"[DONE]" in clean[3] and b"c-1" in clean[1]
    answer = json.dumps({"choices": [{"message": {"content": SAID}}]}).encode()
    assert dropping.pieces([answer[:9], answer[9:]])[0] == b""
    assert SAID.encode() not in b"".join(dropping.pieces([answer[:9], answer[9:]]))
    assert dropping.pieces([]) == []


@pytest.mark.parametrize(
    ("quotation", "clean"),
    [
        (f'content: "{SAID}" in the stream', 'content: "#" in the stream'),
        ("sent 'a b': the server's answer isn't 'c'", "sent '#': the server's answer isn't '#'"),
        ("finish_reason is 'stop', not 'length'", "finish_reason is 'stop', not 'length'"),
        ("see '/var/log/server.log'; http://h:1/v1", "see '/var/log/server.log'; http://h:1/v1"),
        ('  asked with: {"messages": []}', "  asked with: #"),
        ("- Mrs Schmidt\n+ Mr Schmidt", "- #\n+ #"),
        ("E   assert 'a b' == 'b c'", "E   assert '#' == '#'"),
        (f"body = {{'content': {SAID!r}}}", "body = {'content': \"#\"}"),
        ("cut 'Mrs Schm", "cut '#"),
        ("x = b'Mrs Schmidt'", "x = b'#'"),
        ("'token_ids': [1, 2, 3]", "'token_ids': #"),
        ("12 of 13 cases, 4.5 s", "12 of 13 cases, 4.5 s"),
    ],
)
def test_failure_text_quotes_no_prompts(quotation: str, clean: str) -> None:
    assert dropping.prose(quotation) == clean.replace("#", DROPPED)
    assert dropping.prose(dropping.prose(quotation)) == dropping.prose(quotation)


@pytest.mark.parametrize(
    "line",
    [
        f"INFO [logger.py:43] Received request c-1: prompt: {SAID!r}, params: SamplingParams(n=1), "
        "prompt_token_ids: [1, 2], lora_request: None.\n",
        f"DEBUG Request c-1 details: prompt: {SAID!r}, prompt_token_ids: [1, 2].\n",
        f'DEBUG Request c-1 JSON body: {{"messages":[{{"content":"{SAID}"}}]}}\n',
        f"INFO Generated response c-1: output: {SAID!r}, finish_reason: stop\n",
    ],
)
def test_server_log_has_no_prompts(line: str) -> None:
    harmless = "INFO loading 'the weights' of Qwen/Qwen3.5\n"
    log = dropping.log((harmless + line + harmless).encode()).decode()
    assert "Schmidt" not in log and "[1, 2]" not in log
    assert log.startswith(harmless) and log.endswith(harmless)


@given(st.sampled_from(MODES[1:]), st.text(min_size=1), st.text(min_size=1))
def test_no_text_of_a_request_remains(mode: str, prompt: str, answer: str) -> None:
    prompts = Prompts(mode, b"k")
    redacted = prompts.json({"messages": [{"content": prompt}], "answer": [{"content": answer}]})
    assert redacted == {
        "messages": [{"content": prompts.text(prompt)}],
        "answer": [{"content": prompts.text(answer)}],
    }
    assert prompts.json(redacted) == redacted


def test_secrets_are_redacted_before_hashing() -> None:
    redactor = Redactor(["letmein-9"], Prompts(HASH, b"k"))
    same = Redactor([], Prompts(HASH, b"k"))
    body = json.dumps({"messages": [{"content": "it is letmein-9"}], "model": "letmein-9"})
    clean = json.loads(redactor.body(body.encode()))
    assert clean["model"] == REDACTED
    assert clean["messages"][0]["content"] == same.prompts.text(f"it is {REDACTED}")
    redacted = redactor.failure({"reason": "sent 'it is' at letmein-9", "n": (1, "letmein-9")})
    assert redacted == {
        "reason": f"sent '{same.prompts.text('it is')}' at {REDACTED}", "n": (1, REDACTED),
    }  # fmt: skip
    assert redactor.evidence({"said": "letmein-9", "log": "/x"})["log"] == "/x"
    assert b"letmein" not in b"".join(redactor.response([b'data: {"a":"let', b'mein-9"}\n\n']))


PICTURE = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://clinic.example/scans/schmidt.png"}},
        {"type": "input_image", "image_url": PICTURE},
        {"type": "video_url", "video_url": {"url": PICTURE}},
        {"type": "input_audio", "input_audio": {"data": "iVBORw0KGgo=", "format": "wav"}},
        {"type": "image", "source": {"type": "url", "url": "https://clinic.example/schmidt.png"}},
        {"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo="}},
    ],
)  # fmt: skip
def test_pictures_sounds_and_their_addresses_are_dropped(part: dict[str, object]) -> None:
    redacted = json.dumps(dropping.json({"messages": [{"role": "user", "content": [part]}]}))
    assert "iVBOR" not in redacted
    assert "clinic" not in redacted
    assert f'"type": "{part["type"]}"' in redacted


def test_equal_pictures_have_equal_hashes() -> None:
    hashing = Prompts(HASH, b"key")
    first, second = (hashing.json({"image_url": {"url": url}}) for url in (PICTURE, PICTURE + "A"))
    assert first["image_url"]["url"].startswith("[sha256:")
    assert first != second
    assert first == hashing.json({"image_url": {"url": PICTURE}})


def test_an_address_of_the_run_stays() -> None:
    assert dropping.json({"url": "http://127.0.0.1:8000/v1"}) == {"url": "http://127.0.0.1:8000/v1"}
