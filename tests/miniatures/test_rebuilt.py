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

    from pytest_vllm_gates.catalog.lane import Lane

pytestmark = pytest.mark.real

NAME = "mistral"  # the quickest to build
OUTPUT_TOKENS = 24


def answers(checkpoint: Checkpoint, python: Path, lane: Lane) -> dict[str, str]:
    """Return the beginnings of a checkpoint's greedy answers to what it was taught."""
    renderer = ReferenceRenderer(checkpoint, {})
    prompts = {
        dialogue.id: (renderer.render(dialogue.request()).token_ids, OUTPUT_TOKENS)
        for dialogue in load_dialogues(NAME)
    }
    cases = numerics_client.compute(checkpoint, python, lane.overlay_path, prompts).cases
    return {name: "".join(map(renderer.piece, case.output)) for name, case in cases.items()}


@pytest.mark.slow
def test_rebuilt_miniature_answers_like_the_shipped_one(tmp_path: Path) -> None:
    built = tmp_path / NAME
    subprocess.run(
        [sys.executable, "-m", "pytest_vllm_gates.miniatures", "build", NAME, "--output", built],
        check=True,
        capture_output=True,
    )
    lane = lanes.load("cpu", tmp_path)
    prepared = environment.prepare(lane, cache=files.default_cache(), progress=lambda _: None)
    assert prepared.python is not None
    shipped, rebuilt = (
        answers(Checkpoint(NAME, str(folder)), prepared.python, lane)
        for folder in (miniatures.path(NAME), built)
    )
    assert shipped.keys() == rebuilt.keys()
    # Tokenizers are trained on the texts, too: so many tokens are not as many characters.
    differing = {
        name: (text, rebuilt[name])
        for name, text in shipped.items()
        if not (text.startswith(rebuilt[name]) or rebuilt[name].startswith(text))
    }
    assert differing == {}
    assert all(rebuilt.values())
    config = json.loads((built / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["MistralForCausalLM"]
