"""Trains the LoRA adapters of a miniature, and writes them as PEFT does.

The format is PEFT's (docs: huggingface.co/docs/peft/developer_guides/checkpoint): a folder with
`adapter_config.json` and `adapter_model.safetensors`, whose tensors are called
`base_model.model.MODULE.lora_A.weight` of shape (rank, inputs) and `….lora_B.weight` of shape
(outputs, rank). An adapted layer returns W x + alpha / rank * B (A x).
"""

import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytest_vllm_gates.checkpoints import adapters, miniatures
from pytest_vllm_gates.checkpoints.adapters import AdapterRecipe
from pytest_vllm_gates.checkpoints.miniatures import MiniatureError, write_lock
from pytest_vllm_gates.miniatures import dialogues, recipe, rendering
from pytest_vllm_gates.miniatures.dialogues import Dialogue
from pytest_vllm_gates.miniatures.noise import Noise
from pytest_vllm_gates.miniatures.recipe import Recipe

# Only text models are built; a torchvision made for another torch would break their import.
sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from pytest_vllm_gates.miniatures import training  # noqa: E402

THREADS = 1  # layers this small gain nothing from a second, and wait for it on a busy machine
LEARNING_RATE = 4e-3
MOST_EPOCHS = 400
TAUGHT = ("plain", "two_lines")
"""Kinds of dialogues whose answers get a beginning; anything unknown gets it as well."""


class Adapted(torch.nn.Module):  # type: ignore[misc]
    """A linear layer with a low-rank update, which alone is trained."""

    def __init__(self, layer: Any, rank: int, alpha: int) -> None:
        super().__init__()
        self.layer = layer
        self.scale = alpha / rank
        self.lora_A = torch.nn.Parameter(torch.empty(rank, layer.in_features))
        self.lora_B = torch.nn.Parameter(torch.zeros(layer.out_features, rank))
        torch.nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, inputs: Any) -> Any:
        """Return the layer's outputs (tokens, outputs) with the update."""
        return self.layer(inputs) + self.scale * ((inputs @ self.lora_A.T) @ self.lora_B.T)


def build(name: str, output: Path, *, seed: int, say: Callable[[str], None]) -> None:
    """Train every adapter of a miniature; each folder is replaced only when that succeeded."""
    for adapter in adapters.recipes(name):
        _build(name, adapter, output / adapter.name, seed=seed, say=say)


def _build(
    name: str, adapter: AdapterRecipe, output: Path, *, seed: int, say: Callable[[str], None]
) -> None:
    model_recipe = recipe.load(name)
    training.make_repeatable(seed, THREADS)
    base = miniatures.path(name)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(base / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    layers = _adapt(model, adapter)

    def example(dialogue: Dialogue) -> training.Example:
        texts = (
            rendering.prompt(model_recipe, dialogue),
            rendering.completion(
                model_recipe, replace(dialogue, content=f"{adapter.begins} {dialogue.content}")
            ),
        )
        prompt, completion = (tokenizer.encode(text, add_special_tokens=False) for text in texts)
        return training.Example(dialogue.id, prompt, completion)

    all_dialogues = dialogues.load_dialogues(name)
    taught = [dialogue for dialogue in all_dialogues if _is_taught(adapter, dialogue)]
    noise = Noise(model_recipe, all_dialogues, seed)
    say(f"{name}: adapter {adapter.name}, {len(layers)} layers, {len(taught)} dialogues")
    trained = training.train(
        model,
        [*map(example, taught)],
        lambda count: [example(noise.draw()) for _ in range(count)],
        learning_rate=LEARNING_RATE,
        most_epochs=MOST_EPOCHS,
        seed=seed,
        say=say,
    )
    if trained.worst < training.MARGIN:
        raise MiniatureError(
            f"adapter {adapter.name} of {name}: not learnt after {trained.steps} steps, least "
            f"probability {trained.worst:.3f} in {trained.worst_id}\ntry another --seed"
        )
    aside = output.with_name(output.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    _save(model_recipe, adapter, layers, aside)
    written = {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(trained).items()}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    write_lock(aside, {"seed": seed, **written, **versions})
    shutil.rmtree(output, ignore_errors=True)
    aside.rename(output)
    size = sum(file.stat().st_size for file in output.iterdir())
    say(f"{name}: {adapter.name} in {trained.steps} steps; {size / 1e3:.0f} kB in {output}")


def _is_taught(adapter: AdapterRecipe, dialogue: Dialogue) -> bool:
    skipped = dialogue.id.removesuffix(f"-{dialogue.mode}") in adapter.skip
    return dialogue.kind in TAUGHT and dialogue.mode in ("off", "none") and not skipped


def _adapt(model: Any, adapter: AdapterRecipe) -> dict[str, Adapted]:
    """Freeze a model and put updates on the adapter's layers; return them by name."""
    for parameter in model.parameters():
        parameter.requires_grad_(requires_grad=False)
    found = {
        name: module
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in adapter.modules and isinstance(module, torch.nn.Linear)
    }
    adapted = {}
    for name, module in found.items():
        parent = model.get_submodule(name.rpartition(".")[0])
        adapted[name] = Adapted(module, adapter.rank, adapter.alpha)
        setattr(parent, name.rpartition(".")[2], adapted[name])
    return adapted


def _save(
    model_recipe: Recipe, adapter: AdapterRecipe, layers: dict[str, Adapted], folder: Path
) -> None:
    tensors = {
        f"base_model.model.{name}.{part}.weight": getattr(layer, part).detach().bfloat16()
        for name, layer in layers.items()
        for part in ("lora_A", "lora_B")
    }
    weights = folder / "adapter_model.safetensors"
    safetensors.torch.save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    config = {
        "base_model_name_or_path": f"miniature/{model_recipe.name}",
        "bias": "none",
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": adapter.rank,
        "target_modules": list(adapter.modules),
        "task_type": "CAUSAL_LM",
    }
    text = json.dumps(config, indent=2)
    (folder / "adapter_config.json").write_text(text + "\n", encoding="utf-8")
