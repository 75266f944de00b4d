"""A folder with a tokenizer's files alone has its prompts judged: no weights are looked for."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from e2e import gates
from pytest_vllm_gates.checkpoints import miniatures

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real


def test_prompts_of_a_folder_without_weights_are_judged(tmp_path: Path) -> None:
    unlike = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(miniatures.path("qwen3.5"), tmp_path / "tokenizer", ignore=unlike)
    options = ("-m", "chat_template", "--update-golden")
    ran = gates.run(tmp_path, *options, model="./tokenizer")
    assert ran.status == 0, ran.output
    assert ran.outcomes()["chat_template"] == "PASS", ran.reasons("chat_template")
    (family,) = ran.verdict["families"]
    checks = {check["name"]: check["what"] for check in family["boot"]["evidence"]["preflight"]}
    assert checks["checkpoint"] == "its config can be read, and a renderer needs no weights"
