"""Secrets are found in every spelling, and other text stays unchanged."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.redaction.names import names_a_secret
from pytest_vllm_gates.redaction.prompts import DROP, DROPPED, Prompts
from pytest_vllm_gates.redaction.redactor import MUCH, Redactor, of_process
from pytest_vllm_gates.redaction.shown import redacted
from pytest_vllm_gates.redaction.values import REDACTED, hides
from redaction.secret_values import OPENAI, VALUES

if TYPE_CHECKING:
    from pathlib import Path

HUB = "hf_" + "aB3dE6gH9k" * 3
AWKWARD = "p@ss/w\"rd'&<é> 100%"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


def forms(value: str) -> dict[str, str]:
    """Return a value as an artefact may contain it, spelled by the library that writes it."""
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
def test_known_value_is_found_in_every_spelling(value: str) -> None:
    redactor = Redactor([value])
    for name, form in forms(value).items():
        redacted = redactor.text(f"before {form} after")
        # Base64 has a last character that is only partly the value's.
        remainder = form[:-1] if "base64" in name else form
        assert remainder not in redacted and REDACTED in redacted, name
        assert redacted.startswith("before ") and redacted.endswith(" after"), name
        data = redactor.data(f"before {form} after".encode())
        assert form[:-1].encode() not in data, name


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
def test_known_value_is_found_within_other_base64(before: str) -> None:
    value = "correct-horse-9"
    redacted = Redactor([value]).text(base64.b64encode(f"{before}{value}:x".encode()).decode())
    assert REDACTED in redacted
    decoded = base64.b64decode(redacted.partition(REDACTED)[0] + "===")
    assert value[:4].encode() not in decoded


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"token {HUB} is invalid", "token # is invalid"),
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
def test_secret_shapes_are_redacted_and_nothing_else(text: str, clean: str) -> None:
    redacted = Redactor().text(text)
    assert redacted == clean.replace("#", REDACTED)
    assert Redactor().text(redacted) == redacted


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
def test_harmless_text_stays(text: str) -> None:
    assert Redactor().text(text) == text
    assert Redactor().data(text.encode()) == text.encode()


@pytest.mark.parametrize(
    "value",
    ["", "short", "true", "None", "EMPTY", "1234567890", "127.0.0.1:80", "disabled", "redacted"],
)
def test_short_or_common_value_is_not_a_secret(value: str) -> None:
    redactor = Redactor([value])
    text = f"true None EMPTY redacted short {value} 1234567890 127.0.0.1:80 is disabled"
    assert redactor.text(text) == text


def test_six_characters_may_be_a_secret() -> None:
    assert hides("abcdef") and not hides("abcde")
    assert hides("/\0nowhere"), "no file is called so"


def test_path_of_a_file_is_not_a_secret(tmp_path: Path) -> None:
    assert not hides(str(tmp_path))
    assert hides(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "OPENAI_API_KEY", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "GITHUB_PAT",
             "SSH_PASSPHRASE", "GOOGLE_CREDENTIALS", "registry_password", "MYSQL_PWD"],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "TOKENIZERS_PARALLELISM", "VLLM_TOKENIZER", "MAX_TOKENS",
             "API_KEY_FILE", "SSH_AUTH_SOCK", "LANG"],
)  # fmt: skip
def test_harmless_names(name: str) -> None:
    assert not names_a_secret(name)


def test_secrets_come_from_environment_and_arguments(tmp_path: Path) -> None:
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


def test_list_of_keys_is_a_secret_whole_and_in_parts() -> None:
    redactor = of_process({"API_KEYS": "abc,letmein-9,def", "MORE_KEYS": "uvw,xyz"})
    assert redactor.text("abc,letmein-9,def") == REDACTED
    assert redactor.text("abc letmein-9") == f"abc {REDACTED}"
    assert redactor.text("uvw,xyz uvw") == f"{REDACTED} uvw"


def test_url_password_is_a_secret_alone_and_with_its_user() -> None:
    redactor = Redactor()
    redactor.learn_url("http://a%40b:pass:word@host/")
    assert redactor.text("pass:word") == REDACTED
    assert redactor.text("a@b:pass:word") == REDACTED
    assert redactor.text("a@b and host") == "a@b and host"
    redactor.learn_url("http://only-token@host/")
    assert redactor.text("it is only-token") == f"it is {REDACTED}"
    redactor.learn_url(None)


def test_only_values_of_secret_options_are_secrets() -> None:
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
def test_hub_token_is_read_from_the_hubs_file(
    environment: dict[str, str], file: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(" letmein-9\n")
    redactor = of_process({name: value.format(tmp_path) for name, value in environment.items()})
    assert redactor.text("letmein-9") == REDACTED
    path.write_bytes(b"letmein-\xff9")
    assert of_process({"HF_TOKEN_PATH": str(path)}).text("letmein-\ufffd9") == REDACTED


def test_secret_server_flags_are_known_by_their_names() -> None:
    redactor = Redactor()
    redactor.learn_table(
        {"api_key": ["letmein-1", 5, "letmein-2"], "hf-token": "letmein-3", "seed": "letmein-4",
         "password": ("letmein-5",), "api-keys": None}
    )  # fmt: skip
    redacted = redactor.text("letmein-1 letmein-2 letmein-3 letmein-4 letmein-5")
    assert redacted == f"{REDACTED} {REDACTED} {REDACTED} letmein-4 {REDACTED}"


def test_every_occurrence_of_a_secret_is_redacted() -> None:
    redactor = Redactor(["letmein-9", "zzzzzzzz", "correct horse"])
    assert redactor.text("letmein-9\n" * 9) == f"{REDACTED}\n" * 9
    assert redactor.text("letmein-9letmein-9") == REDACTED
    assert redactor.text("z" * 9) == REDACTED
    assert redactor.text("x " * MUCH + "correct horse") == "x " * MUCH + REDACTED


def test_table_is_redacted_by_its_names() -> None:
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


def test_failure_has_neither_prompts_nor_secrets() -> None:
    failure = {"what": f"refused {HUB}", "seen": ["a", (HUB, 1.5, None)], "more": {"key": HUB}}
    assert Redactor().failure(failure) == {
        "what": f"refused {REDACTED}", "seen": ["a", (REDACTED, 1.5, None)],
        "more": {"key": REDACTED},
    }  # fmt: skip
    assert Redactor(prompts=Prompts(DROP)).failure(["it said 'a plan'"]) == [f"it said '{DROPPED}'"]


def test_body_and_response_lose_only_secrets() -> None:
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
def test_no_spelling_of_a_known_value_remains(value: str, before: str, after: str) -> None:
    redactor = Redactor([value])
    for name, form in forms(value).items():
        redacted = redactor.text(before + form + after)
        assert (form[:-1] if "base64" in name else form) not in redacted.replace(REDACTED, "\0")
        assert redactor.text(redacted) == redacted, "what is redacted stays so"


@given(st.text(st.characters(codec="utf-8")))
def test_text_without_secrets_does_not_change(text: str) -> None:
    redactor = Redactor()
    if redactor.text(text) == text:
        assert redactor.data(text.encode()) == text.encode()
        assert redactor.json({"a": [text]}) == {"a": [text]}


@given(VALUES, st.binary(max_size=40), st.lists(st.integers(1, 9)))
def test_redacted_pieces_keep_their_number_and_no_secret(
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


def test_each_piece_keeps_its_own_text() -> None:
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
