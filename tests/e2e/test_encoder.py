"""Families whose prompts vLLM's own encoder writes: compared with the lane's encoder."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from sweeps import sweep

from e2e import gates, own_lane
from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.checkpoints import miniatures

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

GREEN = ("PASS", "KNOWN")
"""Both encoders have a known defect."""

# Why vLLM takes a checkpoint for one of these: the contents of its config.
CONFIGS = {
    "deepseek/v3.2": {
        "architectures": ["DeepseekV32ForCausalLM"],
        "model_type": "deepseek_v32",
        "index_topk": 2048,
        "index_n_heads": 64,
        "index_head_dim": 128,
    },
    "deepseek/v4": {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4"},
    "deepseek/v4.1": {"architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41"},
}
SYSTEM = "<\uff5cSystem\uff5c>"
"""The token that V4.1 has and the miniature of V3.1 has not."""


def weights(folder: Path, model: str) -> Path:
    """Make the folder of a checkpoint of the model, without a template and without weights."""
    copy = folder / "weights" / "own"
    unlike = shutil.ignore_patterns("*.safetensors", "chat_template.jinja")
    shutil.copytree(miniatures.path("deepseek-v3.1"), copy, ignore=unlike)
    config = copy / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | CONFIGS[model]))
    if model == "deepseek/v4.1":
        add_token(copy / "tokenizer.json", SYSTEM)
    return copy


def add_token(file: Path, text: str) -> None:
    """Add a special token to a tokenizer."""
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    added = tokenizer["added_tokens"]
    known = [*tokenizer["model"]["vocab"].values(), *(token["id"] for token in added)]
    added.append({**added[0], "id": max(known) + 1, "content": text})
    file.write_text(json.dumps(tokenizer), encoding="utf-8")


def run_gate(folder: Path, model: str, *options: str) -> gates.GatesRun:
    """Run the gate on the renderer alone."""
    arguments = ("--checkpoint", str(folder / "weights" / "own"), "-m", "chat_template", *options)
    return gates.run(folder, *arguments, model=model)


@pytest.mark.parametrize("model", sweep(CONFIGS, str, lambda config: config == "deepseek/v3.2"))
def test_encoder_of_the_lane_is_the_second_rendering(tmp_path: Path, model: str) -> None:
    weights(tmp_path, model)
    assert run_gate(tmp_path, model, "--update-golden").outcomes()["chat_template"] in GREEN
    ran = run_gate(tmp_path, model)
    assert ran.outcomes()["chat_template"] in GREEN, ran.reasons("chat_template")
    golden = tmp_path / "golden" / model / "own"
    user = families.load(model, tmp_path).prompt.user
    assert user in (golden / "prompt-plain.txt").read_text()
    assert "vllm/tokenizers/deepseek_v" in (golden / "lock.txt").read_text()
    # V3.2 knows no efforts, and `/tokenize` reads none: these are sent as chats.
    efforts = [(golden / f"prompt-effort-{level}.txt") for level in ("low", "high")]
    assert [effort.is_file() for effort in efforts] == [model != "deepseek/v3.2"] * 2


@pytest.mark.slow
def test_server_with_a_template_instead_of_the_encoder_fails(tmp_path: Path) -> None:
    folder = weights(tmp_path, "deepseek/v3.2")
    shutil.copy(miniatures.path("deepseek-v3.1") / "chat_template.jinja", folder)
    own_lane.write(tmp_path, "own", serve={"tokenizer_mode": "hf"})
    ran = run_gate(tmp_path, "deepseek/v3.2", "--lane", "own")
    assert ran.outcomes()["chat_template"] == "FAIL", ran.output
    assert "through /tokenize: the server's prompt differs" in ran.output


@pytest.mark.slow
def test_server_with_an_edited_encoder_fails(tmp_path: Path) -> None:
    weights(tmp_path, "deepseek/v4")
    patched = tmp_path / "patched" / "vllm"
    ready = own_lane.write(tmp_path, "own", env={"PYTHONPATH": str(patched.parent)})
    carried = next(folder / "vllm" for folder in ready.folders if (folder / "vllm").is_dir())
    for real, linked in ((carried, patched), (carried / "tokenizers", patched / "tokenizers")):
        linked.unlink(missing_ok=True)
        linked.mkdir(parents=True)
        for path in real.iterdir():
            (linked / path.name).symlink_to(path)
    edited = patched / "tokenizers" / "deepseek_v4_encoding.py"
    text = edited.read_text()
    edited.unlink()
    edited.write_text(text.replace('USER_SP_TOKEN = "', 'USER_SP_TOKEN = "Hm, '))
    assert edited.read_text() != text
    ran = run_gate(tmp_path, "deepseek/v4", "--lane", "own")
    assert ran.outcomes()["chat_template"] == "FAIL", ran.output
    assert "through /tokenize: the server's prompt differs" in ran.output
