"""A rebuilt miniature answers the same questions like the shipped one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.miniatures.dialogues import load_dialogues
from pytest_vllm_gates.numerics import client as numerics_client
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

NAME = "mistral"  # the quickest to build
OUTPUT_TOKENS = 24


@pytest.mark.slow
def test_rebuilt_miniature_answers_like_the_shipped_one(tmp_path: Path) -> None:
    built = tmp_path / NAME
    subprocess.run(
        [sys.executable, "-m", "pytest_vllm_gates.miniatures", "build", NAME, "--output", built],
        check=True,
        capture_output=True,
    )
    shipped = Checkpoint(NAME, str(miniatures.path(NAME)))
    renders = ReferenceRenderer(shipped, {})
    prompts = {
        dialogue.id: (renders.render(dialogue.request()).token_ids, OUTPUT_TOKENS)
        for dialogue in load_dialogues(NAME)
    }
    lane = lanes.load("cpu", tmp_path)
    prepared = environment.prepare(lane, cache=files.default_cache(), progress=lambda _: None)
    assert prepared.python is not None
    answers = [
        numerics_client.compute(checkpoint, prepared.python, lane.overlay_path, prompts).cases
        for checkpoint in (shipped, Checkpoint(NAME, str(built)))
    ]
    outputs = [{name: case.output for name, case in cases.items()} for cases in answers]
    assert outputs[0] == outputs[1]
    config = json.loads((built / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["MistralForCausalLM"]
