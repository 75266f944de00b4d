"""Teaches the miniature that embeds: a question's vector is nearest to its document's."""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_vllm_gates.checkpoints.miniatures import MiniatureError
from pytest_vllm_gates.miniatures.recipe import Recipe
from pytest_vllm_gates.miniatures.tokenizer import MiniatureTokenizer
from pytest_vllm_gates.pooling import plan

sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch  # noqa: E402
import transformers  # noqa: E402

MARGIN = 0.3
"""By how much a question is nearer to its document than to any other text, in cosine."""
TEMPERATURE = 0.1
NOISE_TEXTS = 8
NOISE_WORDS = (3, 30)


@dataclass(frozen=True)
class EmbeddingResult:
    """The result of a training; `worst` is the least margin of a question, with weights in bf16."""

    steps: int
    seconds: float
    worst: float


def texts(question: str) -> list[tuple[str, str]]:
    """Return the taught pairs, the question as the family writes it."""
    pairs = plan.shipped().pairs
    return [(question.replace("TEXT", pair.question), pair.document) for pair in pairs]


def train(
    model: Any,
    tokenizer: MiniatureTokenizer,
    model_recipe: Recipe,
    question: str,
    *,
    seed: int,
    say: Callable[[str], None],
) -> EmbeddingResult:
    """Pull each question towards its document and away from all other texts (InfoNCE).

    The loss is that of van den Oord et al., arXiv:1807.03748, over cosines. Raises `MiniatureError`
    when a margin is too small after the recipe's epochs.
    """
    begun = time.monotonic()
    pairs = [
        (tokenizer.text_ids(asked), tokenizer.text_ids(document))
        for asked, document in texts(question)
    ]
    others = [tokenizer.text_ids(text) for text in plan.shipped().texts.values()]
    chance = random.Random(seed)  # noqa: S311 - words, no secrets
    words = sorted({word for pair in texts(question) for text in pair for word in text.split()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=model_recipe.training.learning_rate)
    for step in range(1, model_recipe.training.epochs + 1):
        noise = [
            tokenizer.text_ids(" ".join(chance.choices(words, k=chance.randint(*NOISE_WORDS))))
            for _ in range(NOISE_TEXTS)
        ]
        asked = torch.stack([_vector(model, ids) for ids, _ in pairs])
        told = torch.stack([_vector(model, ids) for ids in [d for _, d in pairs] + others + noise])
        loss = torch.nn.functional.cross_entropy(
            asked @ told.T / TEMPERATURE, torch.arange(len(pairs))
        )
        # Documents and other texts are to be apart from one another, too.
        between = told @ told.T - torch.eye(len(told))
        loss = loss + between.clamp(min=0.3).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            worst = _least_margin(model, pairs, others)
            say(f"epoch {step}: loss {float(loss.detach()):.4f}, least margin {worst:.3f}")
            if worst >= MARGIN:
                return EmbeddingResult(step, time.monotonic() - begun, worst)
    raise MiniatureError(
        f"miniature {model_recipe.name}: a question is not near enough to its document after "
        f"{model_recipe.training.epochs} steps\ntry another --seed"
    )


def _least_margin(model: Any, pairs: Any, others: Any) -> float:
    """Return the least margin with the weights as they are shipped (bf16)."""
    exact = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: t.bfloat16().to(t.dtype) for name, t in exact.items()})
    with torch.no_grad():
        asked = torch.stack([_vector(model, ids) for ids, _ in pairs])
        told = torch.stack([_vector(model, ids) for ids in [d for _, d in pairs] + others])
        near = asked @ told.T
    model.load_state_dict(exact)
    own = near.diagonal()
    rest = near - 2 * torch.eye(*near.shape)
    return float((own - rest.max(1).values).min())


def _vector(model: Any, ids: list[int]) -> Any:
    """Return the normalised hidden state (width,) of the last token."""
    hidden = model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0, -1]
    return torch.nn.functional.normalize(hidden.float(), dim=0)


def model_of(model_recipe: Recipe, tokenizer: MiniatureTokenizer) -> Any:
    """Return the untrained model."""
    values = dict(model_recipe.config)
    kind = values.pop("model_type")
    ids = {
        "eos_token_id": tokenizer.id_of(model_recipe.tokens.config_eos),
        "pad_token_id": tokenizer.id_of(model_recipe.tokens.pad),
    }
    config = transformers.AutoConfig.for_model(kind, **ids, **values)
    return transformers.AutoModelForCausalLM.from_config(config).float()


def write_modules(folder: Path, width: int) -> None:
    """Write how vectors are made, in the format of sentence-transformers (`modules.json`)."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds.items())
    ]
    _write(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir()
    _write(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": width, "pooling_mode_lasttoken": True, "include_prompt": True},
    )


def _write(file: Path, values: object) -> None:
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
