"""What is secret is found in every spelling, and what is none stays as it is."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.redaction.prompts import DROP, DROPPED, Prompts
from pytest_vllm_gates.redaction.redactor import (
    MUCH,
    REDACTED,
    Redactor,
    hides,
    names_a_secret,
    of_process,
)
from pytest_vllm_gates.redaction.shown import redacted
from redaction.secret_values import OPENAI, VALUES

if TYPE_CHECKING:
    from pathlib import Path

HUB = "hf_" + "aB3dE6gH9k" * 3
AWKWARD = "p@ss/w\"rd'&<é> 100%"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


def forms(value: str) -> dict[str, str]:
    """Return a value as it may stand in an artefact, spelled by the library that would."""
    return {
        "plain": value,
        "URL": quote(value, safe=""),
        "path": quote(value),
        "form": quote_plus(value),
        "JSON": json.dumps(value)[1:-1],
        "JSON in UTF-8": json.dumps(value, ensure_ascii=False)[1:-1],
        "JSON in JSON": json.dumps(json.dumps(value))[1:-1],
        "Python": repr(value)[1:-1],
        "HTML": html.escape(value),
        "base64": base64.b64encode(value.encode()).decode().rstrip("="),
        "base64 of a URL": base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    }


@pytest.mark.parametrize("value", ["correct-horse-9", AWKWARD, "Zürich2024!", "a+b/c=d~e"])
def test_a_known_value_is_found_however_it_is_spelled(value: str) -> None:
    redactor = Redactor([value])
    for name, form in forms(value).items():
        told = redactor.text(f"before {form} after")
        # Base64 has a last character that is only partly the value's.
        left = form[:-1] if "base64" in name else form
        assert left not in told and REDACTED in told, name
        assert told.startswith("before ") and told.endswith(" after"), name
        data = redactor.data(f"before {form} after".encode())
        assert form[:-1].encode() not in data, name


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
def test_a_known_value_is_found_within_base64_of_something_else(before: str) -> None:
    value = "correct-horse-9"
    told = Redactor([value]).text(base64.b64encode(f"{before}{value}:x".encode()).decode())
    assert REDACTED in told
    decoded = base64.b64decode(told.partition(REDACTED)[0] + "===")
    assert value[:4].encode() not in decoded


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"token {HUB} is no good", "token # is no good"),
        (f"key={OPENAI}", "key=#"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer #"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic #"),
        ("{'Authorization': 'Bearer abc'}", "{'Authorization': 'Bearer #'}"),
        ('{"authorization":"Basic dXNlcjpw"}', '{"authorization":"Basic #"}'),
        (r"{\"Authorization\": \"Bearer abc\"}", r"{\"Authorization\": \"Bearer #\"}"),
        ("(b'authorization', b'Bearer abc')", "(b'authorization', b'Bearer #')"),
        ("Proxy-Authorization: Basic eHg6eXk=", "Proxy-Authorization: Basic #"),
        ("refused: Bearer letmein1", "refused: Bearer #"),
        ("Cookie: session=1234; more=x", "Cookie: #"),
        ("x-api-key: abcdefgh", "x-api-key: #"),
        ("vllm serve m --api-key letmein --port 1", "vllm serve m --api-key # --port 1"),
        ("--api-key=letmein x", "--api-key=# x"),
        ("['--api-key', 'letmein']", "['--api-key', '#']"),
        ("args: {'api_key': ['one-key', 'two'], 'n': 1}", "args: {'api_key': [#], 'n': 1}"),
        ("Namespace(api_key='letmein', host=None)", "Namespace(api_key='#', host=None)"),
        ("docker run -e HF_TOKEN=letmein image", "docker run -e HF_TOKEN=# image"),
        ("OPENAI_API_KEY=letmein python", "OPENAI_API_KEY=# python"),
        ("at http://me:pa@ss@host:80/v1?a=b@c", "at http://#@host:80/v1?a=b@c"),
        ("https://tok@pypi.example/simple", "https://#@pypi.example/simple"),
        ("GET /f?X-Amz-Signature=0123456789abcdef&b=1", "GET /f?X-Amz-Signature=#&b=1"),
        ("GET /f?token=abcdef12&b=1", "GET /f?token=#&b=1"),
        (f"AKIA{'ABCD2345' * 2} in us-east-1", "# in us-east-1"),
        (f"ghp_{'a1B2' * 9}", "#"),
        (f"github_pat_{'a1B2_' * 9}", "#"),
        ("xoxb-1234567890-abcdefghij", "#"),
        (f"nvapi-{'a1B2' * 9}", "#"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "#"),
    ],
)
def test_what_looks_secret_is_redacted_and_nothing_beside_it(text: str, clean: str) -> None:
    told = Redactor().text(text)
    assert told == clean.replace("#", REDACTED)
    assert Redactor().text(told) == told


SUM = hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        SUM,
        f"sha256:{SUM}",
        "token_ids: [151644, 872, 198, 3838, 374]",
        '{"token": " Paris", "logprob": -0.25, "bytes": [32, 80]}',
        "<|im_start|>user\n<|im_end|> eos_token=</s> pad_token='<|endoftext|>'",
        "Qwen/Qwen3.5-397B-A17B-FP8 zai-org/GLM-4.7-Flash hf_overrides hf_config_path",
        "max_tokens=1024, prompt_tokens=7, tokenizer_mode=auto, skip_tokenizer_init=False",
        "Avg prompt throughput: 12.3 tokens/s",
        "http://127.0.0.1:8000/v1/chat/completions http://[::1]:8000/metrics",
        "mail to someone@example.org about http://example.org",
        "a Bearer token is needed; Bearer authentication",
        "argument --api-key: expected one argument; --api-key or VLLM_API_KEY",
        "export OPENAI_API_KEY=..., or name its variable with --api-key-env NAME",
        "OPENAI_API_KEY=EMPTY OPENAI_API_KEY=$KEY HF_TOKEN=<yours>",
        "def f(api_key: str | None = None): g(api_key=self.key, password=None)",
        "task-0123456789012345678901 disk-usage-of-1234567890123",
        "kv_cache_memory_bytes=1073741824 block_size=16 seed=0",
        "/root/.cache/huggingface/hub/models--Qwen--Qwen3/snapshots/" + SUM[:40],
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text
    assert Redactor().data(text.encode()) == text.encode()


@pytest.mark.parametrize(
    "value",
    ["", "short", "true", "None", "EMPTY", "1234567890", "127.0.0.1:80", "disabled", "redacted"],
)
def test_what_is_short_or_common_is_no_secret(value: str) -> None:
    redactor = Redactor([value])
    text = f"true None EMPTY redacted short {value} 1234567890 127.0.0.1:80 is disabled"
    assert redactor.text(text) == text


def test_six_characters_may_be_a_secret() -> None:
    assert hides("abcdef") and not hides("abcde")
    assert hides("/\0nowhere"), "no file is called so"


def test_the_path_of_a_file_is_no_secret(tmp_path: Path) -> None:
    assert not hides(str(tmp_path))
    assert hides(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "OPENAI_API_KEY", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "GITHUB_PAT",
             "SSH_PASSPHRASE", "GOOGLE_CREDENTIALS", "registry_password", "MYSQL_PWD"],
)  # fmt: skip
def test_names_that_speak_of_a_secret(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "TOKENIZERS_PARALLELISM", "VLLM_TOKENIZER", "MAX_TOKENS",
             "API_KEY_FILE", "SSH_AUTH_SOCK", "LANG"],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert not names_a_secret(name)


def test_a_process_tells_what_is_secret_of_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("letmein-hub\n")
    (tmp_path / "named").write_text("letmein-named\n")
    environment = {
        "SERVICE_TOKEN": "letmein-env",
        "API_KEYS": "letmein-one,letmein-two",
        "DEPLOY_KEY": "-----BEGIN PRIVATE KEY-----\nbGV0bWVpbi1saW5l\n",
        "HTTPS_PROXY": "http://me:letmein%2Dproxy@proxy:3128",
        "TOKENIZERS_PARALLELISM": "letmein-no",
        "HF_HOME": str(tmp_path),
        "HF_TOKEN_PATH": str(tmp_path / "named"),
        "HOME": "/nowhere",
    }
    arguments = ["serve", "--api-key", "letmein-arg", "letmein-arg2", "--port", "letmein-port"]
    redactor = of_process(environment, [*arguments, "--hf-token=letmein-flag"])
    for secret in (
        "letmein-env", "letmein-one", "letmein-two", "bGV0bWVpbi1saW5l", "letmein%2Dproxy",
        "letmein-proxy", "letmein-hub", "letmein-named", "letmein-arg", "letmein-arg2",
        "letmein-flag",
    ):  # fmt: skip
        assert redactor.text(secret) == REDACTED, secret
    assert redactor.text("letmein-no letmein-port serve") == "letmein-no letmein-port serve"


def test_a_variable_of_several_keys_is_a_secret_whole_and_in_parts() -> None:
    redactor = of_process({"API_KEYS": "abc,letmein-9,def", "MORE_KEYS": "uvw,xyz"})
    assert redactor.text("abc,letmein-9,def") == REDACTED
    assert redactor.text("abc letmein-9") == f"abc {REDACTED}"
    assert redactor.text("uvw,xyz uvw") == f"{REDACTED} uvw"


def test_the_password_of_a_url_is_a_secret_alone_and_with_its_user() -> None:
    redactor = Redactor()
    redactor.learn_url("http://a%40b:pass:word@host/")
    assert redactor.text("pass:word") == REDACTED
    assert redactor.text("a@b:pass:word") == REDACTED
    assert redactor.text("a@b and host") == "a@b and host"
    redactor.learn_url("http://only-token@host/")
    assert redactor.text("it is only-token") == f"it is {REDACTED}"
    redactor.learn_url(None)


def test_of_arguments_only_what_a_secrets_option_takes_is_one() -> None:
    arguments = [
        "positional-1", "--port=given-1234", "--api-key=letmein-1", "behind-one",
        "--name", "a-name-1", "--proxy", "http://me:letmein-2@host",
    ]  # fmt: skip
    redactor = of_process({}, arguments)
    assert redactor.text("positional-1 given-1234 a-name-1") == "positional-1 given-1234 a-name-1"
    assert redactor.text("letmein-1, behind-one, letmein-2") == ", ".join([REDACTED] * 3)


@pytest.mark.parametrize(
    ("environment", "file"),
    [
        ({"HOME": "{}"}, ".cache/huggingface/token"),
        ({"HOME": "{}", "XDG_CACHE_HOME": "{}/xdg"}, "xdg/huggingface/token"),
        ({"HOME": "{}", "XDG_CACHE_HOME": "{}/xdg", "HF_HOME": "{}/hf"}, "hf/token"),
        ({"HOME": "{}", "HF_TOKEN_PATH": "{}/own"}, "own"),
        ({"HOME": "{}", "HF_TOKEN_PATH": "{}/nothing"}, ".cache/huggingface/token"),
    ],
)
def test_the_hubs_token_is_looked_for_where_the_hub_leaves_it(
    environment: dict[str, str], file: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(" letmein-9\n")
    redactor = of_process({name: text.format(tmp_path) for name, text in environment.items()})
    assert redactor.text("letmein-9") == REDACTED
    path.write_bytes(b"letmein-\xff9")
    assert of_process({"HF_TOKEN_PATH": str(path)}).text("letmein-\ufffd9") == REDACTED


def test_the_secrets_of_a_servers_flags_are_learned_by_their_names() -> None:
    redactor = Redactor()
    redactor.learn_table(
        {"api_key": ["letmein-1", 5, "letmein-2"], "hf-token": "letmein-3", "seed": "letmein-4",
         "password": ("letmein-5",), "api-keys": None}
    )  # fmt: skip
    told = redactor.text("letmein-1 letmein-2 letmein-3 letmein-4 letmein-5")
    assert told == f"{REDACTED} {REDACTED} {REDACTED} letmein-4 {REDACTED}"


def test_a_secret_is_found_wherever_and_as_often_as_it_stands() -> None:
    redactor = Redactor(["letmein-9", "zzzzzzzz", "correct horse"])
    assert redactor.text("letmein-9\n" * 9) == f"{REDACTED}\n" * 9
    assert redactor.text("letmein-9letmein-9") == REDACTED
    assert redactor.text("z" * 9) == REDACTED
    assert redactor.text("x " * MUCH + "correct horse") == "x " * MUCH + REDACTED


def test_a_table_is_redacted_by_its_names_too() -> None:
    redactor = Redactor(["letmein-9"])
    assert redactor.json(
        {
            "api_key": ["another-1", "x"],
            "api-key": 5,
            "n": 1,
            "at": ("letmein-9", None),
            "letmein-9": 2.5,
        }
    ) == {"api_key": [REDACTED, "x"], "api-key": 5, "n": 1, "at": (REDACTED, None), REDACTED: 2.5}
    headers = {"Authorization": "x", "X-Api-Key": "y", "Host": "a", "Via": "letmein-9"}
    assert redactor.headers(headers) == {
        "Authorization": REDACTED, "X-Api-Key": REDACTED, "Host": "a", "Via": REDACTED,
    }  # fmt: skip


def test_of_a_failure_no_prompt_is_quoted_and_no_secret() -> None:
    told = {"what": f"refused {HUB}", "seen": ["a", (HUB, 1.5, None)], "more": {"key": HUB}}
    assert Redactor().failure(told) == {
        "what": f"refused {REDACTED}", "seen": ["a", (REDACTED, 1.5, None)],
        "more": {"key": REDACTED},
    }  # fmt: skip
    assert Redactor(prompts=Prompts(DROP)).failure(["it said 'a plan'"]) == [f"it said '{DROPPED}'"]


def test_a_body_and_a_response_stay_but_for_what_is_secret() -> None:
    redactor = Redactor(["letmein-9"])
    assert redactor.body(b'{"messages": []}') == b'{"messages": []}'
    assert redactor.body(b'{"user": "letmein-9"}') == f'{{"user": "{REDACTED}"}}'.encode()
    assert redactor.response([b"data: let", b"mein-9\n\n", b"x"]) == [
        f"data: {REDACTED}".encode(), b"\n\n", b"x",
    ]  # fmt: skip
    assert redactor.evidence({"said": "letmein-9", "n": 1}) == {"said": REDACTED, "n": 1}
    dropping = Redactor(["letmein-9"], Prompts(DROP))
    assert dropping.evidence({"content": "a plan", "n": 1}) == {"content": DROPPED, "n": 1}
    assert dropping.body(b'{"content": "a plan"}') == f'{{"content": "{DROPPED}"}}'.encode()
    assert dropping.response([b'{"content": ', b'"a plan"}']) == [
        b"", f'{{"content": "{DROPPED}"}}'.encode(),
    ]  # fmt: skip


def test_an_environment_is_shown_without_its_secrets() -> None:
    assert redacted({"HF_TOKEN": "x", "HF_ENDPOINT": "https://a:b@hub", "VLLM_PORT": "1"}) == {
        "HF_TOKEN": REDACTED, "HF_ENDPOINT": f"https://{REDACTED}@hub", "VLLM_PORT": "1",
    }  # fmt: skip


@given(VALUES, TEXTS, TEXTS)
def test_no_known_value_is_left_in_any_spelling(value: str, before: str, after: str) -> None:
    redactor = Redactor([value])
    for name, form in forms(value).items():
        told = redactor.text(before + form + after)
        assert (form[:-1] if "base64" in name else form) not in told.replace(REDACTED, "\0")
        assert redactor.text(told) == told, "what is redacted stays so"


@given(st.text(st.characters(codec="utf-8")))
def test_without_anything_secret_nothing_changes(text: str) -> None:
    redactor = Redactor()
    if redactor.text(text) == text:
        assert redactor.data(text.encode()) == text.encode()
        assert redactor.json({"a": [text]}) == {"a": [text]}


@given(VALUES, st.binary(max_size=40), st.lists(st.integers(1, 9)))
def test_pieces_stay_as_many_and_hold_nothing_together(
    value: str, around: bytes, sizes: list[int]
) -> None:
    redactor = Redactor([value])
    data = around + value.encode() + around
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    pieces.append(data)
    clean = redactor.pieces(pieces)
    assert len(clean) == len(pieces)
    assert value.encode() not in b"".join(clean).replace(REDACTED.encode(), b"\0")


def test_each_piece_keeps_what_is_its_own() -> None:
    pieces = [
        b"ab letmein-9 cd letmein-9", b"", b"letmein-9 ", b"letmein-9", b"x", b" letme", b"in-",
        b"9!", b"letmein-9",
    ]  # fmt: skip
    mark = REDACTED.encode()
    assert Redactor(["letmein-9"]).pieces(pieces) == [
        b"ab " + mark + b" cd " + mark, b"", b" ", mark, b"x", b" " + mark, b"", b"!", mark,
    ]  # fmt: skip
    assert Redactor(["letmein-9"]).pieces([b"letmein-9", b" letmein-9 a"]) == [
        mark, b" " + mark + b" a",
    ]  # fmt: skip
