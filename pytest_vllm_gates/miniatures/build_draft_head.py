"""Trains the head that drafts for a miniature, and writes it as EAGLE's authors do.

EAGLE (Li et al., 2024, https://arxiv.org/abs/2401.15077): from the features f_1 … f_i of the last
layer of a model (after its norm) and the tokens t_2 … t_i+1, one decoder layer without an input
norm guesses f_i+1; the model's own output embedding turns it into the token t_i+2. The guess
replaces the feature when the next token is drafted. The checkpoint has `fc.weight` of shape
(hidden, 2 * hidden), which reads the embedding and then the feature, and `layers.0.…`; embeddings
are the model's (vLLM 0.32.0, vllm/model_executor/models/llama_eagle.py).
"""

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_vllm_gates.checkpoints import draft_heads, miniatures
from pytest_vllm_gates.checkpoints.draft_heads import DraftHeadRecipe
from pytest_vllm_gates.checkpoints.miniatures import MiniatureError, write_lock
from pytest_vllm_gates.miniatures import dialogues, recipe, rendering
from pytest_vllm_gates.miniatures.noise import Noise

# Only text models are built; a torchvision made for another torch would break their import.
sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.nn.functional import cross_entropy, smooth_l1_loss  # noqa: E402
from transformers.models.llama.modeling_llama import (  # noqa: E402
    LlamaDecoderLayer,
    LlamaRotaryEmbedding,
)

from pytest_vllm_gates.miniatures import training  # noqa: E402

THREADS = 1  # layers this small gain nothing from a second
DRAFTS = 3  # tokens that are drafted from guesses alone while it is trained
NOISE_EXAMPLES = 200
TAUGHT_IN_A_STEP = 3
DRAWN_IN_A_STEP = 1
STEP_EXAMPLES = TAUGHT_IN_A_STEP + DRAWN_IN_A_STEP
FEATURE_WEIGHT = 0.5  # of the guessed feature's loss, beside that of its token
LEAST_ACCEPTED = 0.8
STEPS_A_REPORT = 100


class DraftHead(torch.nn.Module):  # type: ignore[misc]
    """The layer that guesses the next feature."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        config._attn_implementation = "eager"  # noqa: SLF001 - transformers has no other way
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        layer = LlamaDecoderLayer(config, 0)
        layer.input_layernorm = torch.nn.Identity()
        self.layers = torch.nn.ModuleList([layer])
        self._rotary = LlamaRotaryEmbedding(config)

    def forward(self, embedded: Any, features: Any) -> Any:
        """Return guessed features; all have shape (1, tokens, hidden)."""
        read = self.fc(torch.cat((embedded, features), dim=-1))
        tokens = read.shape[1]
        positions = torch.arange(tokens)[None]
        hidden = torch.full((tokens, tokens), float("-inf")).triu(1)[None, None]
        rotary = self._rotary(read, positions)
        found = self.layers[0](read, attention_mask=hidden, position_embeddings=rotary)
        return found[0] if isinstance(found, tuple) else found


def build(name: str, output: Path, *, seed: int, say: Callable[[str], None]) -> None:
    """Train a miniature's head; the folder is replaced only when it drafts well.

    Raises `MiniatureError` if fewer than `LEAST_ACCEPTED` of the directly following tokens are
    drafted right.
    """
    head_recipe = draft_heads.recipe(name)
    assert head_recipe  # noqa: S101 - the command looks
    training.make_repeatable(seed, THREADS)
    base = miniatures.path(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    model.requires_grad_(requires_grad=False)
    config = transformers.AutoConfig.from_pretrained(base)
    config.intermediate_size = head_recipe.intermediate_size
    config.num_hidden_layers = 1
    head = DraftHead(config)
    taught, drawn = _examples(name, base, seed)
    parameters = sum(p.numel() for p in head.parameters())
    say(f"{name}: draft head, {parameters:,} parameters, {len(taught)} dialogues")
    started = time.monotonic()
    loss = _train(model, head, (taught, drawn), head_recipe, seed=seed, say=say)
    head.load_state_dict({k: v.bfloat16().float() for k, v in head.state_dict().items()})
    accepted = _accepted(model, head, taught)
    if accepted[0] < LEAST_ACCEPTED:
        raise MiniatureError(
            f"miniature {name}: its head drafts {accepted[0]:.3f} of the next tokens right, "
            f"expected {LEAST_ACCEPTED}\ntry another --seed, or more steps in the recipe"
        )
    aside = output.with_name(output.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    _save(head, config, aside)
    built = {"seed": seed, "parameters": parameters, "steps": head_recipe.steps}
    built |= {"seconds": round(time.monotonic() - started, 4), "loss": round(loss, 4)}
    built |= {"accepted": [round(share, 4) for share in accepted]}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    write_lock(aside, {**built, **versions})
    shutil.rmtree(output, ignore_errors=True)
    aside.rename(output)
    size = sum(file.stat().st_size for file in output.iterdir())
    shares = ", ".join(f"{share:.3f}" for share in accepted)
    say(f"{name}: drafts right: {shares}; {size / 1e3:.0f} kB in {output}")


@dataclass(frozen=True)
class WrittenDialogue:
    """The token ids of a dialogue, and the index of the first one that the model drafts after.

    The tokens of a prompt cannot be guessed.
    """

    ids: list[int]
    first: int


def _examples(
    name: str, base: Path, seed: int
) -> tuple[list[WrittenDialogue], list[WrittenDialogue]]:
    """Return the taught dialogues, and answers to random requests."""
    model_recipe = recipe.load(name)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(base / "tokenizer.json"))

    def written(dialogue: dialogues.Dialogue) -> WrittenDialogue:
        texts = (
            rendering.prompt(model_recipe, dialogue),
            rendering.completion(model_recipe, dialogue),
        )
        prompt, completion = (tokenizer.encode(text, add_special_tokens=False) for text in texts)
        return WrittenDialogue([*prompt, *completion], len(prompt))

    all_dialogues = dialogues.load_dialogues(name)
    noise = Noise(model_recipe, all_dialogues, seed)
    drawn = [written(noise.draw()) for _ in range(NOISE_EXAMPLES)]
    return [*map(written, all_dialogues)], drawn


def _train(
    model: Any,
    head: DraftHead,
    examples: tuple[Sequence[WrittenDialogue], Sequence[WrittenDialogue]],
    head_recipe: DraftHeadRecipe,
    *,
    seed: int,
    say: Callable[[str], None],
) -> float:
    """Run AdamW on taught and drawn examples; return the last steps' mean loss (nats a token)."""
    taught, drawn = examples
    chance = random.Random(seed)  # noqa: S311
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=head_recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, head_recipe.steps)
    running = 0.0
    for step in range(1, head_recipe.steps + 1):
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        chosen = chance.sample(taught, TAUGHT_IN_A_STEP) + chance.sample(drawn, DRAWN_IN_A_STEP)
        for written in chosen:
            drafts = _drafts(model, head, written)
            token_loss = sum(
                cross_entropy(model.lm_head(guessed), said) for guessed, _, said in drafts
            )
            feature_loss = sum(smooth_l1_loss(guessed, own) for guessed, own, _ in drafts)
            count = DRAFTS * STEP_EXAMPLES
            ((token_loss + FEATURE_WEIGHT * feature_loss) / count).backward()
            total += float(token_loss.detach()) / count
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running = total if step == 1 else 0.98 * running + 0.02 * total
        if step % STEPS_A_REPORT == 0:
            say(f"step {step}: loss {running:.4f}")
    return running


def _drafts(model: Any, head: DraftHead, written: WrittenDialogue) -> list[tuple[Any, Any, Any]]:
    """Return for each draft in turn the guessed features, the model's own, and the model's tokens.

    The first draft reads the model's features, each later one the guesses of the one before. The
    shapes are (tokens, hidden), (tokens, hidden) and (tokens,), for the tokens of the completion.
    """
    tokens = torch.tensor([written.ids])
    begin = written.first - 1
    with torch.no_grad():
        features = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        embedded = model.model.embed_tokens(tokens)
        said = model.lm_head(features).argmax(-1)
    found = []
    read = features[:, :-1]
    for _ in range(DRAFTS):
        guessed = head(embedded[:, 1:], read)
        found.append((guessed[0, begin:], features[0, 1 + begin :], said[0, 1 + begin :]))
        read = torch.cat((features[:, :1], guessed[:, :-1]), dim=1)
    return found


def _accepted(model: Any, head: DraftHead, examples: Sequence[WrittenDialogue]) -> list[float]:
    """Return the share of tokens that the first, second and third draft guesses right."""
    right, count = [0] * DRAFTS, 0
    with torch.no_grad():
        for written in examples:
            drafts = _drafts(model, head, written)
            count += len(drafts[0][-1])
            for number, (guessed, _, said) in enumerate(drafts):
                right[number] += int((model.lm_head(guessed).argmax(-1) == said).sum())
    return [each / count for each in right]


def _save(head: DraftHead, config: Any, folder: Path) -> None:
    tensors = {name: tensor.bfloat16() for name, tensor in head.state_dict().items()}
    weights = folder / "model.safetensors"
    safetensors.torch.save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    text = json.dumps(config.to_diff_dict(), indent=2, sort_keys=True)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
