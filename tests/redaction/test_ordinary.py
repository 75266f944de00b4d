"""Ordinary texts stay readable: logs, source code, prompts, counts, digests, images."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from pathlib import Path

import pytest

from pytest_vllm_gates.redaction.names import Secrecy, names_a_secret, secrecy
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.redaction.shown import is_secret_flag
from redaction.secrets_made import seeded

ROOT = Path(__file__).parents[2]
LOGS = sorted((ROOT / "tests" / "signatures").rglob("*.log"))
SOURCES = sorted((ROOT / "pytest_vllm_gates").rglob("*.py"))
SHA256 = hashlib.sha256(b"weights").hexdigest()
SHA1 = hashlib.sha1(b"weights", usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_log_of_vllm_stays(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    assert Redactor().text(text) == text
    document = {"log": text.splitlines(), "name": path.name}
    assert Redactor().json(document) == document


def test_source_code_of_the_project_stays() -> None:
    redactor = Redactor()
    # The redaction's own source has lists of names of secrets, next to each other.
    sources = [path for path in SOURCES if path.parent.name != "redaction"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    text = text.replace("Bearer {", "")  # a header is one, whatever is filled in
    assert redactor.text(text) == text


def test_goldens_stay() -> None:
    for path in sorted((ROOT / "golden").rglob("*")):
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            assert Redactor().text(text) == text, path


@pytest.mark.parametrize(
    "text",
    [
        "E       assert answer.token == 'Paris', f'token {key} of {tokens}'",
        ">       key = self.keys[name]; token = tokens.pop()",
        "    secret_key = hashlib.sha256(seed.encode()).hexdigest()",
        "    api_key: str | None = None, auth_token: Optional[str] = None,",
        "    client = OpenAI(api_key=settings.api_key, base_url=url)",
        "KeyError: 'model.layers.0.self_attn.k_proj.weight_scale'",
        "    weight_key=kFp8StaticTensorSym, activation_key=kFp8Dynamic128Sym,",
        "loaded model.layers.17.self_attn.k_norm.weight key=k_norm token=v_proj2",
        "max_tokens=1024 prompt_tokens=7 completion_tokens: 12, cached_tokens: 0",
        "{'max_num_batched_tokens': 8192, 'kv_cache_dtype': 'fp8_e4m3', 'tokenizer': 'a/B-7b-x1'}",
        "bos_token='<|begin_of_text|>' eos_token_id=[151645, 151643] pad_token: <pad>",
        '{"num_key_value_heads": 8, "num_attention_heads": 64, "key_head_dim": 128}',
        '{"token": "token_id:151644", "logprob": -0.5, "bytes": null}',
        '{"token": " Internationalization", "logprob": -0.5}, {"token": "0x1f4a9", "logprob": 0}',
        '{"api_key_env": "MY_VARIABLE_1", "token_type": "bearer", "auth_type": "basic1234"}',
        "Avg prompt throughput: 12.3 tokens/s, Prefix cache hit rate: 45.6%",
        "the password must have 8 characters; the secret: patience and time",
        "Explain what a token is, and why a key: value store has keys.",
        f"request 3f2a1b4c chatcmpl-{uuid.UUID(int=7 << 99)} took 3 s",
        f"session {uuid.UUID(int=2**100 + 12345)} token: {uuid.UUID(int=2**100 + 12345)}",
        f"sha256:{SHA256} commit {SHA1} (key {SHA1[:12]}) cache_key={SHA256}",
        f"vllm 0.12.1.dev3+g{SHA1[:9]} digest=sha256:{SHA256}",
        "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ2VydGlmaWNhdGVzQXJlUHVibGlj\n",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPublicKeysArePublicToo me@host",
        "up_proj_layers_0_weight_scale_inv_2 s.model.decoder1.layers2 SKIP AC 16 dose",
        "--token-path PATH_1 where a token is; --tokenizer-mode {auto,slow}; --max-tokens 8x16k2",
        "VLLM_USE_V1=1 VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE=163840 TOKENIZERS_PARALLELISM=false",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().text(text) == text
    assert Redactor().json({"said": text}) == {"said": text}
    assert json.loads(json.dumps(Redactor().json({"said": [text]}))) == {"said": [text]}


def test_prompts_of_a_request_stay_that_are_sent_again() -> None:
    image = base64.b64encode(seeded(3).randbytes(300_000)).decode()
    prompt = (
        'db_pass = "correct-horse-9"; service_key: abc123def456; {"client_secret": "a1b2c3d4"}; '
        "npm_token: a1B2c3D4e5F6g7H8i9; curl -u me:letmein-9; STRIPE_KEY=a1b2c3d4e5"
    )
    content = [
        {"type": "text", "text": prompt},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
    ]
    tool = {"type": "object", "properties": {"api_key": {"type": "string"}, "token": {}}}
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 7,
         "tools": [{"type": "function", "function": {"name": "login", "parameters": tool}}],
         "logit_bias": {"151644": 1}, "cache_salt": "a1b2c3d4e5f6g7h8", "stop": ["</s>"]}
    ).encode()  # fmt: skip
    assert Redactor().body(body) == body
    assert Redactor().prompt({"messages": [prompt]}) == {"messages": [prompt]}


def test_credentials_of_a_request_are_redacted_and_the_rest_of_it_stays() -> None:
    body = b'{"model": "m", "api_key": "letmein-9", "user": "me", "auth" : "a1b2c3d4e5f6"}'
    assert Redactor().body(body) == (
        b'{"model": "m", "api_key": "[redacted]", "user": "me", "auth" : "[redacted]"}'
    )


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "prompt_tokens", "cached_tokens", "max_num_batched_tokens", "tokenizer",
     "tokenizer_mode", "token_ids", "stop_token_ids", "bos_token", "eos_token_id", "pad_token",
     "additional_special_tokens", "num_key_value_heads", "kv_cache_dtype", "kv_tokens",
     "api_key_env", "reasoning_key", "cache_key", "long_prefill_token_threshold", "PWD", "PATH",
     "enable_prompt_tokens_details", "ssl_keyfile", "kv_cache_size_tokens", "first_token_s",
     "output_tokens_per_s", "kv_bytes_per_token", "num_experts_per_tok", "signature",
     "return_tokens_as_token_ids", "monkey_patch", "KEYBOARD_LAYOUT", "compatibility",
     "SSH_AUTH_SOCK", "key_head_dim", "path", "passed_over", "num_speculative_tokens"],
)  # fmt: skip
def test_innocent_name_is_not_secret(name: str) -> None:
    assert secrecy(name) is Secrecy.NONE
    assert not names_a_secret(name)
    assert not is_secret_flag(f"--{name}")


@pytest.mark.parametrize(
    "name",
    ["HF_TOKENS", "SERVICE_TOKENS", "SESSION_COOKIE", "REGISTRY_AUTH", "DEPLOY_KEY", "BLOB_SAS",
     "SLACK_WEBHOOK_URL", "AZURE_STORAGE_CONNECTION_STRING", "API_KEY_2", "OPENAI_API_KEY_PROD",
     "clientSecret", "X-Api-Key", "x-amz-security-token", "privateKey", "KV_REST_API_TOKEN",
     "SharedAccessKey", "NEXTAUTH_SECRET", "SENTRY_DSN", "PGPASSWORD", "hf-token", "APIKEY",
     "STRIPE_KEYS", "proxy-authorization", "set-cookie", "db_passwords", "VAULT_SECRET_ID"],
)  # fmt: skip
def test_secrets_name_is_one_in_every_spelling(name: str) -> None:
    words = name.replace("-", "_")
    for spelling in (name, words, words.lower(), words.upper(), words.replace("_", "-")):
        if spelling.lower() == words.lower() and "_" not in words and spelling != name:
            continue  # it differed only in capitals
        assert secrecy(spelling) is Secrecy.SURE, spelling
        assert names_a_secret(spelling)
        assert is_secret_flag(f"--{spelling}")
