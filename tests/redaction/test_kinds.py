"""Secrets of every kind are found in every text, however they came to be."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings, strategies as st

from pytest_vllm_gates.redaction import library
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.redaction.stream import Stream
from redaction.secrets_made import ISSUED, NAMED, Planted, made, private_key, seeded

LOG = "(EngineCore_DP0 pid=71) INFO 11-24 10:00:00 [core.py:58] {}"
FORMS = {
    "alone": "{}", "in a log": LOG, "in a sentence": "it failed with {}, and ended",
    "coloured": "\x1b[32m{}\x1b[0m",
}  # fmt: skip


def test_there_are_enough_kinds() -> None:
    assert len(ISSUED) + len(NAMED) >= 65


@given(st.integers(min_value=0))
@settings(max_examples=30, deadline=None)
def test_no_part_of_any_secret_is_left_in_any_text(seed: int) -> None:
    redactor = Redactor()
    for secret in made(seeded(seed)):
        for form, text in FORMS.items():
            clean = redactor.text(text.format(secret.text))
            assert not left(secret, clean), (secret.kind, form, clean)
        clean = redactor.text(json.dumps({"said": secret.text}))
        assert not left(secret, clean), (secret.kind, "as JSON", clean)
        assert not left(secret, json.dumps(redactor.json({"said": [secret.text]}))), secret.kind
        pieces = redactor.response([secret.text[:9].encode(), secret.text[9:].encode()])
        assert not left(secret, b"".join(pieces).decode()), (secret.kind, "in pieces")


# It begins with "s.", as does much of a program.
NOT_IN_PROMPTS = {"Vault of before 1.10"}


@given(st.integers(min_value=0))
@settings(max_examples=15, deadline=None)
def test_issued_secrets_and_private_keys_are_found_in_prompts(seed: int) -> None:
    random = seeded(seed)
    for secret in [*made(random)]:
        if secret.kind in NAMED or secret.kind in NOT_IN_PROMPTS:
            continue
        for text in (secret.text, f"why is {secret.text} refused?", f"run\n\t{secret.text}\nok"):
            request = {"messages": [{"role": "user", "content": text}]}
            clean = Redactor().body(json.dumps(request).encode()).decode()
            assert json.loads(clean)["messages"][0]["role"] == "user"
            assert not left(secret, clean), (secret.kind, clean)
            assert not left(secret, json.dumps(Redactor().prompt(request))), secret.kind


@pytest.mark.parametrize(
    "label",
    ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY",
     "ENCRYPTED PRIVATE KEY", "PGP PRIVATE KEY BLOCK"],
)  # fmt: skip
@pytest.mark.parametrize(
    "before", ["", "(EngineCore pid=7) ", "Nov 24 10:00:00 host vllm[1]: ", "E   "]
)
def test_private_key_is_found_line_by_line(label: str, before: str) -> None:
    secret = private_key(seeded(label), label)
    lines = [f"{before}{line}\n".encode() for line in secret.text.splitlines()]
    stream = Stream(Redactor())
    read = b"".join(stream.feed(line) + stream.idle() for line in [*lines, b"loaded in 7 s\n"])
    clean = (read + stream.end()).decode()
    assert not left(secret, clean)
    assert f"-----BEGIN {label}-----" in clean and clean.endswith("loaded in 7 s\n")
    whole = Redactor().text(b"".join([*lines, b"loaded in 7 s\n"]).decode())
    assert whole == clean


def test_private_key_that_is_not_ended_hides_no_more_than_its_lines() -> None:
    secret = private_key(seeded(1))
    cut = secret.text[: secret.text.index("-----END")]
    clean = Redactor().text(f"{cut}INFO started server process\nINFO ready\n")
    assert not left(secret, clean)
    assert clean.endswith("INFO started server process\nINFO ready\n")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_matches_of_a_library_rule_are_redacted(data: st.DataObject) -> None:
    plugin = data.draw(st.sampled_from(library.plugins()))
    rule = data.draw(st.sampled_from(library.rules(plugin.name)))
    text = data.draw(st.from_regex(rule, alphabet=st.characters(codec="ascii")))
    found = rule.search(text)
    if found and not plugin.random and len(found[0].strip()) >= 6 and "redacted" not in text:
        line = text[text.rfind("\n", 0, found.start()) + 1 :]
        if rule.search(line.split("\n")[0]):
            assert Redactor().text(text) != text, plugin.name


def test_every_plugin_of_the_library_is_used_or_left_out_for_a_reason() -> None:
    import pkgutil  # noqa: PLC0415
    import tomllib  # noqa: PLC0415

    import detect_secrets.plugins  # noqa: PLC0415

    from pytest_vllm_gates import data  # noqa: PLC0415

    table = tomllib.loads((data.FOLDER / library.TABLE).read_text())
    known = {*table["used"], *table["unused"]}
    there = {module.name for module in pkgutil.iter_modules(detect_secrets.plugins.__path__)}
    assert there - {"base"} == known
    assert all(library.rules(name) for name in table["used"])


def test_secret_in_base64_of_a_docker_config_is_found() -> None:
    auth = base64.b64encode(b"me:letmein-9-letmein").decode()
    assert auth not in Redactor().text(f'{{"auths": {{"r.example": {{"auth": "{auth}"}}}}}}')


def left(secret: Planted, clean: str) -> list[str]:
    """Return the parts of a secret that are still in a text."""
    return [part for part in secret.parts if part in clean]
