"""Trains a tiny model until it has memorised every example with a margin."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch.nn.functional import cross_entropy

from pytest_vllm_gates.miniatures.training_state import TrainingState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_vllm_gates.miniatures.eyes import Tower

MARGIN = 0.9  # the least probability of a taught token: far above what bf16 or a batch moves
BATCH_TOKENS = 4096  # of one forward pass, padding included
SHORT_TOKENS = 64  # below this, padding costs less than another pass
STEP_EXAMPLES = 8  # taught examples in one optimizer step
KNOWN = 0.97  # least probability from which an example is trained less often
REFRESHED = 0.3  # share of the known examples in an epoch
WARM_UP_STEPS = 20
SLOWER_BELOW_LOSS = 0.1  # nats per token
LEAST_RATE = 0.2  # share of the learning rate that is left where the loss is small
SIGHT_EXAMPLES = 16  # pictures in one step of the lessons that come before the dialogues
STEPS_A_REPORT = 20


@dataclass(frozen=True)
class Example:
    """The model's input token ids and the token ids it must write."""

    id: str
    prompt: Sequence[int]
    completion: Sequence[int]
    pictures: tuple[Any, ...] = ()
    """The vision tower's input for each picture, in the order of their places in the prompt."""

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training; `worst` is a taught token's least probability in bf16 weights."""

    steps: int
    seconds: float
    loss: float
    worst: float
    worst_id: str


def make_repeatable(seed: int, threads: int) -> None:
    """Make torch reach the same weights each time, and silence transformers meanwhile."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)


def train(
    model: Any,
    examples: Sequence[Example],
    draw: Callable[[int], list[Example]],
    *,
    learning_rate: float,
    most_epochs: int,
    seed: int,
    say: Callable[[str], None],
    see: Callable[[int], list[Example]] | None = None,
    sight_steps: int = 0,
    slower_below: float = SLOWER_BELOW_LOSS,
    least_rate: float = LEAST_RATE,
    tower: Tower | None = None,
    state: TrainingState | None = None,
) -> TrainingResult:
    """Run AdamW until every token of every completion has at least MARGIN.

    `draw(n)` returns n fresh examples of the answer to unknown requests; they are trained beside
    the taught ones and not judged. `see(n)` returns n fresh examples with pictures: `sight_steps`
    steps of only those come first, because they are short and seeing takes longest to learn.
    The rate falls with the loss below `slower_below`, to `least_rate` of `learning_rate`.
    `tower` is the kind of vision tower; each of its ways is taught in turn.
    With a `state` an interrupted training resumes from its last saved state.
    """
    started = time.monotonic()
    chance = random.Random(seed)  # noqa: S311
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0
    )
    state = state or TrainingState(None)
    steps = begun = state.restore(model, optimizer)
    # A resumed training does not begin with the whole rate again.
    running = slower_below * least_rate if begun else 10.0
    ways = tower.ways if tower else 1

    while see and steps < sight_steps:
        _set_rate(
            optimizer, learning_rate * _rate(steps - begun, running, least_rate, slower_below)
        )
        loss, probabilities = _step(model, optimizer, see(SIGHT_EXAMPLES), tower, steps % ways)
        running = 0.9 * running + 0.1 * loss
        steps += 1
        if steps % STEPS_A_REPORT == 0:
            seconds = time.monotonic() - started
            right = sum(value >= MARGIN for value in probabilities.values())
            say(
                f"pictures, step {steps}, {seconds:.0f} s: loss {running:.4f}, "
                f"{right}/{len(probabilities)} right"
            )
            state.keep(model, optimizer, steps)
    least = dict.fromkeys((example.id for example in examples), 0.0)
    for epoch in range(most_epochs):
        # Known examples are only refreshed now and then: the time goes to the others.
        order = [e for e in examples if least[e.id] < KNOWN or chance.random() < REFRESHED]
        chance.shuffle(order)
        for start in range(0, len(order), STEP_EXAMPLES):
            chosen = order[start : start + STEP_EXAMPLES]
            _set_rate(
                optimizer, learning_rate * _rate(steps - begun, running, least_rate, slower_below)
            )
            drawn = draw(1 + len(chosen) // 3)
            loss, probabilities = _step(model, optimizer, chosen + drawn, tower, steps % ways)
            least.update((id_, value) for id_, value in probabilities.items() if id_ in least)
            running = 0.9 * running + 0.1 * loss
            steps += 1
        state.keep(model, optimizer, steps)
        if min(least.values()) >= MARGIN:
            least = margins(model, examples, tower)
        worst = min(least, key=least.__getitem__)
        seconds = time.monotonic() - started
        say(
            f"epoch {epoch + 1}, step {steps}, {seconds:.0f} s: loss {running:.4f}, "
            f"known {sum(p >= MARGIN for p in least.values())}/{len(least)}, "
            f"least probability {least[worst]:.3f} in {worst}"
        )
        if least[worst] >= MARGIN:
            break
    return TrainingResult(steps, seconds, running, least[worst], worst)


def _set_rate(optimizer: Any, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _rate(steps: int, loss: float, least: float, slower_below: float) -> float:
    """Return the share of the learning rate: a warm-up, then smaller the closer the end is."""
    if steps < WARM_UP_STEPS:
        return (steps + 1) / WARM_UP_STEPS
    return min(1.0, max(least, loss / slower_below))


def _step(
    model: Any, optimizer: Any, examples: Sequence[Example], tower: Tower | None, way: int
) -> tuple[float, dict[str, float]]:
    """Take one optimizer step; return mean loss (nats per token) and least probabilities by id."""
    optimizer.zero_grad(set_to_none=True)
    count = sum(len(example.completion) for example in examples)
    total, least = 0.0, {}
    for batch in _batches(examples):
        logits, targets = _forward(model, batch, tower, way)
        losses = cross_entropy(logits, targets, reduction="none")
        (losses.sum() / count).backward()
        total += float(losses.detach().sum()) / count
        least.update(_least(losses.detach(), batch))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total, least


def _least(losses: Any, batch: Sequence[Example]) -> dict[str, float]:
    """Return the least probability of a token by example; losses have shape (tokens,)."""
    parts = losses.split([len(example.completion) for example in batch])
    return {
        example.id: math.exp(-float(part.max())) for example, part in zip(batch, parts, strict=True)
    }


def margins(
    model: Any, examples: Sequence[Example], tower: Tower | None = None
) -> dict[str, float]:
    """Return the least probability of any taught token by example, with weights as shipped (bf16).

    A taught token above one half is the greedy choice. Pictures are read in each of the ways of
    their `tower`.
    """
    exact = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rounded = {
        name: tensor.bfloat16().to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in exact.items()
    }
    model.load_state_dict(rounded)
    least = dict.fromkeys((example.id for example in examples), 1.0)
    with torch.no_grad():
        for way in range(tower.ways if tower else 1):
            for batch in _batches(examples):
                logits, targets = _forward(model, batch, tower, way)
                found = _least(cross_entropy(logits, targets, reduction="none"), batch)
                least.update((id_, min(value, least[id_])) for id_, value in found.items())
    model.load_state_dict(exact)
    return least


def _batches(examples: Sequence[Example]) -> Iterator[list[Example]]:
    """Group examples of similar length into batches of at most BATCH_TOKENS, with padding."""
    batch: list[Example] = []
    for example in sorted(examples, key=len):
        too_many = (len(batch) + 1) * len(example) > BATCH_TOKENS
        too_uneven = (
            bool(batch) and len(example) > SHORT_TOKENS and len(example) > 1.5 * len(batch[0])
        )
        if batch and (too_many or too_uneven):
            yield batch
            batch = []
        batch.append(example)
    yield batch


def _forward(
    model: Any, batch: Sequence[Example], tower: Tower | None, way: int
) -> tuple[Any, Any]:
    """Return logits (tokens, vocabulary) and targets (tokens) of the batch's completions.

    Padding is on the right, where a causal model never looks at it.
    """
    width = max(len(example) for example in batch)
    ids = torch.zeros((len(batch), width), dtype=torch.long)
    is_taught = torch.zeros((len(batch), width), dtype=torch.bool)
    for row, example in enumerate(batch):
        ids[row, : len(example)] = torch.tensor([*example.prompt, *example.completion])
        is_taught[row, len(example.prompt) : len(example)] = True
    pictures = [picture for example in batch for picture in example.pictures]
    seen = tower.inputs(ids, pictures, way) if tower and pictures else {}
    hidden = model.model(input_ids=ids, use_cache=False, **seen).last_hidden_state
    before = hidden[:, :-1][is_taught[:, 1:]]
    return model.lm_head(before).float(), ids[is_taught]
