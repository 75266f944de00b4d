"""Environments and command lines are shown without their secrets."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.redaction.shown import is_secret_flag, redacted_words, seal
from pytest_vllm_gates.redaction.values import REDACTED

HUB = "hf_" + "aB3dE6gH9k" * 3


@pytest.mark.parametrize(
    ("line", "redacted"),
    [
        ("vllm serve m --api-key letmein --port 1", "vllm serve m --api-key # --port 1"),
        ("--api_key=letmein x", "--api_key=# x"),
        ("--hf-token letmein", "--hf-token #"),
        ("--api-key --port 1", "--api-key --port 1"),
        ("docker run -e HF_TOKEN=letmein -eAPI_KEY=me --env=MY_SECRET=a=b image",
         "docker run -e HF_TOKEN=# -eAPI_KEY=# --env=MY_SECRET=# image"),
        ("env VLLM_PORT=1 --max-num-batched-tokens=8 --max-model-len 8",
         "env VLLM_PORT=1 --max-num-batched-tokens=8 --max-model-len 8"),
        ("HF_TOKEN= x", "HF_TOKEN= x"),
        (f"login {HUB}", "login #"),
    ],
)  # fmt: skip
def test_command_line_loses_only_secrets(line: str, redacted: str) -> None:
    assert " ".join(redacted_words(line.split())) == redacted.replace("#", REDACTED)


def test_value_of_several_lines_is_redacted_whole() -> None:
    assert list(redacted_words(["DEPLOY_KEY=one\ntwo"])) == [f"DEPLOY_KEY={REDACTED}"]


def test_secret_flag_is_known_in_every_spelling() -> None:
    assert all(map(is_secret_flag, ("--api-key", "--api_key", "api_key", "hf-token")))
    assert not any(map(is_secret_flag, ("--api-server-count", "--max-num-batched-tokens", "")))


def test_sealed_value_is_distinct_and_reveals_nothing() -> None:
    assert seal("letmein") == seal("letmein") != seal("letmeout")
    assert b"letmein" not in seal("letmein")
