"""A server's stop tokens are tested on the server: its files may list one it does not use."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from e2e import gates
from e2e.served import subject_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

THINKS = "<think>"


@pytest.mark.slow
def test_extra_and_missing_stop_tokens_of_a_server(tmp_path: Path) -> None:
    family, miniature = subject_of(gates.MODEL)
    weights = shutil.copytree(miniature.source, tmp_path / "weights" / "own")
    tokens = json.loads((weights / "tokenizer.json").read_text())["added_tokens"]
    ids = {token["content"]: token["id"] for token in tokens}
    ends, text_ends = family.prompt.stop_tokens
    generation = weights / "generation_config.json"
    config = json.loads(generation.read_text())
    assert sorted(config["eos_token_id"]) == sorted([ids[ends], ids[text_ends]])
    config["eos_token_id"] = [ids[ends], ids[THINKS]]
    generation.write_text(json.dumps(config))
    ran = gates.run(
        tmp_path, "--checkpoint", str(weights), "-m", "chat_template or boot", "-k", "stop or boots"
    )
    words = ran.reasons("chat_template")
    assert f"the server goes on after {text_ends!r}: answers run on past their end" in words
    assert f"the server stops at {THINKS!r}, which ends no answer of this family" in words
    assert f"after {ends!r}" not in words
    # The files reveal less: config.json still names the token.
    assert f"{text_ends} ends an answer" not in words
