"""Secrets of many kinds, made by program: none lies in the repository for a scanner to find."""

from __future__ import annotations

import base64
import json
import string
import textwrap
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORD = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BASE64 = WORD + "+/"
URLSAFE = WORD + "-_"
UPPER = string.ascii_uppercase + string.digits


class Planted(NamedTuple):
    """A text that has a secret in it, and the parts none of which may be left."""

    kind: str
    text: str
    parts: tuple[str, ...]


def seeded(seed: int | str) -> Random:
    """Return what draws the same samples for a seed."""
    return Random(seed)  # noqa: S311 - samples for tests


def made(random: Random) -> Iterator[Planted]:
    """Yield a secret of every kind in a text as it is met in logs, files and bodies."""
    for kind, make in {**ISSUED, **NAMED}.items():
        text, *parts = make(random)
        yield Planted(kind, text, tuple(parts))
    yield private_key(random)


def some(random: Random, characters: str, count: int) -> str:
    """Return random characters, a digit and both cases among them where there are such."""
    sure = [
        part
        for part in ("7", "q", "Q")
        if part in characters or (part == "q" and "d" in characters)
    ]
    sure = ["d" if part == "q" and "q" not in characters else part for part in sure]
    rest = [random.choice(characters) for _ in range(count - len(sure))]
    mixed = sure + rest
    random.shuffle(mixed)
    return "".join(mixed)


def _prefixed(begins: str, characters: str, count: int, around: str = "token {} refused") -> Make:
    def make(random: Random) -> tuple[str, str]:
        secret = begins + some(random, characters, count)
        return around.format(secret), secret[len(begins) :]

    return make


def _within(around: str, characters: str = WORD, count: int = 24) -> Make:
    def make(random: Random) -> tuple[str, str]:
        secret = some(random, characters, count)
        return around.replace("#", secret), secret

    return make


def _jwt(random: Random) -> tuple[str, str, str]:
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "HS256"}, {"sub": some(random, WORD, 12)})
    )
    signature = some(random, URLSAFE, 43)
    return f"got {head}.{body}.{signature} back", body, signature


def _docker_auth(random: Random) -> tuple[str, str]:
    auth = base64.b64encode(f"me:{some(random, WORD, 20)}".encode()).decode()
    return json.dumps({"auths": {"registry.example": {"auth": auth}}}), auth


def _service_account(random: Random) -> tuple[str, str]:
    key = private_key(random)
    return json.dumps({"type": "service_account", "private_key": key.text}), key.parts[0]


def _listed(random: Random) -> tuple[str, str, str]:
    one, two = some(random, WORD, 18), some(random, WORD, 18)
    return f"args: {{'api_keys': ['{one}', '{two}'], 'port': 8000}}", one, two


def private_key(random: Random, label: str = "RSA PRIVATE KEY") -> Planted:
    """Return a private key of several lines."""
    body = base64.b64encode(random.randbytes(420)).decode()
    lines = textwrap.wrap(body, 64)
    text = "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])
    return Planted(label, text, tuple(line for line in lines if len(line) > 8))


if TYPE_CHECKING:
    Make = Callable[[Random], tuple[str, ...]]

ISSUED: dict[str, Make] = {
    "Hugging Face": _prefixed("hf_", WORD, 34),
    "OpenAI": _prefixed("sk-proj-", URLSAFE, 48),
    "Anthropic": _prefixed("sk-ant-api03-", URLSAFE, 60),
    "AWS access key": _prefixed("AKIA", UPPER, 16),
    "AWS session token": _prefixed("FwoGZXIvYXdz", BASE64, 120),
    "GitHub": _prefixed("ghp_", WORD, 36),
    "GitHub fine-grained": _prefixed("github_pat_", WORD, 60),
    "GitLab": _prefixed("glpat-", URLSAFE, 20),
    "Google API": _prefixed("AIza", URLSAFE, 35),
    "Google OAuth": _prefixed("ya29.", URLSAFE, 60),
    "Google client secret": _prefixed("GOCSPX-", URLSAFE, 28),
    "NVIDIA": _prefixed("nvapi-", URLSAFE, 60),
    "npm": _prefixed("npm_", WORD, 36),
    "PyPI": _prefixed("pypi-AgEIcHlwaS5vcmc", URLSAFE, 80),
    "Stripe": _prefixed("sk_live_", WORD, 24),
    "Stripe restricted": _prefixed("rk_live_", WORD, 24),
    "Stripe webhook": _prefixed("whsec_", WORD, 32),
    "Vault": _prefixed("hvs.", URLSAFE, 90),
    "Vault of before 1.10": _prefixed("s.", WORD, 24),
    "Docker": _prefixed("dckr_pat_", URLSAFE, 27),
    "Slack": _prefixed("xoxb-", string.digits + "-" + WORD, 40),
    "SendGrid": lambda random: (
        f"key SG.{(one := some(random, URLSAFE, 22))}.{(two := some(random, URLSAFE, 43))} x",
        one, two,
    ),
    "Databricks": _prefixed("dapi", HEX, 32),
    "DigitalOcean": _prefixed("dop_v1_", HEX, 64),
    "Terraform": lambda random: (
        f"token {(one := some(random, WORD, 14))}.atlasv1.{(two := some(random, URLSAFE, 62))}",
        one, two,
    ),
    "Azure client secret": lambda random: (
        f"secret {some(random, WORD, 3)}8Q~{(one := some(random, WORD, 34))} expired", one,
    ),
    "Twilio": _prefixed("SK", HEX, 32),
    "Groq": _prefixed("gsk_", WORD, 48),
    "Grafana": _prefixed("glsa_", WORD, 32),
    "Shopify": _prefixed("shpat_", HEX, 32),
    "Artifactory": _prefixed("AKCp", WORD, 65),
    "Telegram": lambda random: (
        f"bot {random.randrange(10**9, 10**10)}:AA{(one := some(random, URLSAFE, 33))} sent", one,
    ),
    "JWT": _jwt,
    "Slack webhook": _within("POST https://hooks.slack.com/services/T0AB/B0CD/# 200"),
    "Discord webhook": _within("https://discord.com/api/webhooks/123/#", URLSAFE, 60),
    "Teams webhook": _within("https://a.webhook.office.com/webhookb2/x@y/hook/#/z", HEX, 32),
    "Azure SAS": _within("https://a.blob.example/c?sv=2024-01-01&sr=c&sig=#%3D&se=1", WORD, 43),
    "AWS signed URL": _within("GET /f?X-Amz-Expires=9&X-Amz-Signature=# HTTP/1.1", HEX, 64),
    "URL's password": _within("https://me:#@host.example/v1"),
}  # fmt: skip
NAMED: dict[str, Make] = {
    "Azure account key": _within("DefaultEndpoints;AccountName=a;AccountKey=#==;", BASE64, 86),
    "AWS secret key": _within("aws_secret_access_key = #", BASE64, 40),
    "AWS secret key in JSON": _within('{"SecretAccessKey": "#"}', BASE64, 40),
    "bearer header": _within("Authorization: Bearer #", URLSAFE),
    "basic header in Python": _within("{'Authorization': 'Basic #'}"),
    "API key header": _within("x-api-key: #"),
    "cookie": _within("Set-Cookie: session=#; HttpOnly"),
    "flag": _within("vllm serve m --api-key # --port 1"),
    "flag in a list": _within("['--hf-token', '#']"),
    "another flag": _within("run --registry-password=# --port 1"),
    "plural variable": _within("SERVICE_TOKENS=#,other"),
    "cookie's variable": _within("export GATEWAY_COOKIE=#"),
    "auth's variable": _within("REGISTRY_AUTH=#"),
    "key's variable": _within("DATADOG_APP_KEY=#", HEX, 40),
    "SAS's variable": _within("BLOB_SAS=#"),
    "properties": _within("db.password = #"),
    "YAML": _within("  client_secret: #"),
    "quoted YAML": _within("  api_token: '#'"),
    "dict": _within("config={'port': 8000, 'access_token': '#', 'n': 1}"),
    "JSON in JSON": _within(r'body: "{\"refresh_token\": \"#\"}"'),
    "JSON body": _within('{"username": "me", "password": "#"}'),
    "camel case": _within('{"clientSecret": "#"}'),
    "query": _within("GET /v1/models?access_token=#&n=1 HTTP/1.1"),
    "form": _within("grant_type=x&client_secret=#&scope=y"),
    "npmrc": _within("//registry.example/:_authToken=#"),
    "netrc": _within("connection_string='Server=a;Password=#;'"),
    "container's env": _within('[{"name": "WANDB_API_KEY", "value": "#"}]', HEX, 40),
    "Docker's config": _docker_auth,
    "service account": _service_account,
    "list of keys": _listed,
}
