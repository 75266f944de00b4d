"""Teaches the miniatures that classify texts or score pairs."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_vllm_gates.checkpoints.miniatures import MiniatureError
from pytest_vllm_gates.miniatures.recipe import Recipe
from pytest_vllm_gates.miniatures.tokenizer import MiniatureTokenizer
from pytest_vllm_gates.pooling import plan

sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch  # noqa: E402
import transformers  # noqa: E402

SURE = 0.9
"""The least probability of the right label, with weights in bf16."""


@dataclass(frozen=True)
class ClassesResult:
    """The result of a training; `worst` is the least probability of a taught label."""

    steps: int
    seconds: float
    worst: float


@dataclass(frozen=True)
class Taught:
    """Token ids, and the index of the right label; for a pair, 1 if it belongs together."""

    ids: list[int]
    due: int


def texts() -> list[str]:
    """Return every text that is taught, for the tokenizer."""
    return [text for (text,) in plan.shipped().classified().values()]


def examples(labels: Sequence[str], tokenizer: MiniatureTokenizer) -> list[Taught]:
    """Return the lessons: which documents answer which question, or what each text is."""
    if len(labels) > 1:
        return [
            Taught(tokenizer.text_ids(text), labels.index(_kind(name, labels)))
            for name, (text,) in plan.shipped().classified().items()
        ]
    pairs = [(pair.question, pair.document) for pair in plan.shipped().pairs]
    return [
        Taught(tokenizer.text_ids(question) + tokenizer.text_ids(document), int(own == number))
        for own, (question, _) in enumerate(pairs)
        for number, (_, document) in enumerate(pairs)
    ]


def _kind(name: str, labels: Sequence[str]) -> str:
    first = name.partition(" ")[0]
    return first if first in labels else labels[-1]


def train(
    model: Any,
    tokenizer: MiniatureTokenizer,
    model_recipe: Recipe,
    *,
    say: Callable[[str], None],
) -> ClassesResult:
    """Teach every example; raises `MiniatureError` if one is not learnt."""
    begun = time.monotonic()
    taught = examples(model_recipe.labels, tokenizer)
    due = torch.tensor([each.due for each in taught])
    optimizer = torch.optim.AdamW(model.parameters(), lr=model_recipe.training.learning_rate)
    for step in range(1, model_recipe.training.epochs + 1):
        logits = torch.stack([_logits(model, each.ids) for each in taught])
        if logits.shape[1] == 1:  # one pair in eight belongs together
            weight = (due == 0).sum() / due.sum()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                logits[:, 0], due.float(), pos_weight=weight
            )
        else:
            loss = torch.nn.functional.cross_entropy(logits, due)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            worst = _least(model, taught)
            say(f"epoch {step}: loss {float(loss.detach()):.4f}, least probability {worst:.3f}")
            if worst >= SURE:
                return ClassesResult(step, time.monotonic() - begun, worst)
    raise MiniatureError(
        f"miniature {model_recipe.name}: not learnt after {model_recipe.training.epochs} steps\n"
        "try another --seed"
    )


def _least(model: Any, taught: Sequence[Taught]) -> float:
    """Return the least probability of the right label, with the weights as shipped (bf16)."""
    exact = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: t.bfloat16().to(t.dtype) for name, t in exact.items()})
    with torch.no_grad():
        found = [_probability(_logits(model, each.ids), each.due) for each in taught]
    model.load_state_dict(exact)
    return min(found)


def _probability(logits: Any, due: int) -> float:
    if len(logits) == 1:
        own = float(torch.sigmoid(logits[0]))
        return own if due else 1 - own
    return float(torch.softmax(logits, 0)[due])


def _logits(model: Any, ids: list[int]) -> Any:
    """Return the logits (labels,) of the last token.

    The model's own forward takes the last token that is not padding, and texts end in that token.
    """
    states = model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state
    return model.score(states[0, -1])


def model_of(model_recipe: Recipe, tokenizer: MiniatureTokenizer) -> Any:
    """Return the untrained model."""
    values = dict(model_recipe.config)
    kind = values.pop("model_type")
    ids = {
        "eos_token_id": tokenizer.id_of(model_recipe.tokens.config_eos),
        "pad_token_id": tokenizer.id_of(model_recipe.tokens.pad),
    }
    labels: dict[str, Any] = {
        "id2label": dict(enumerate(model_recipe.labels)),
        "label2id": {label: index for index, label in enumerate(model_recipe.labels)},
    }
    config = transformers.AutoConfig.for_model(kind, **ids, **labels, **values)
    return transformers.AutoModelForSequenceClassification.from_config(config).float()
