"""Measures how many tokens it takes to find silent changes of a server, and what other tests find.

    python benchmarks/equivalence.py                       four families' miniatures
    python benchmarks/equivalence.py --model glm --orders 100 --save
    python benchmarks/equivalence.py --table               the recorded results, as Markdown

vLLM's engine is started unchanged (twice: the second is an A/A comparison), and once for each
change, with an edited checkpoint or an undeclared change. Each scores the forced texts. Prints for
each change the mean distance in nats; the share of `--orders` random orders of the texts in which
it is different within 4,096 tokens, checked after each text from the fifth on; the median of the
tokens that this took; and the odds over all texts. If a change is found in fewer than 99 % of the
orders, larger ones of its kind are tried, and the number of tokens of such texts that would find it
in 99 % of the trials is printed: texts are drawn with replacement, 16, 32 and so on up to 256 of
them. For comparison:

tolerances   whether the fixed tolerances of `numerics.toml` find it
smoke test   how many of the taught answers of `numerics.txt` change (greedy, 16 tokens)
evaluation   as many questions as GSM8K's test has, 1,319; here they are next tokens of the taught
             prompts, which are right if the likeliest token is the prompt's: the share of right
             ones before and after, and whether they differ by 1.96 standard errors or more, the
             usual comparison of two runs of an evaluation

Exits 1 if the second boot is different, or if a change is found in fewer than 99 % of the orders.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import math
import os
import random
import statistics
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silent_changes import (  # type: ignore[import-not-found, unused-ignore]
    AGAIN,
    KINDS,
    ONCE,
    TRUSTED,
    Change,
    Machine,
    Scored,
    reference,
)

from pytest_vllm_gates.machine.inspect import inspect
from pytest_vllm_gates.numerics import checks_paired
from pytest_vllm_gates.numerics.checks import prompt_distance, tolerance_of
from pytest_vllm_gates.numerics.checks_paired import LEAST_TEXTS, Equivalence, compare
from pytest_vllm_gates.numerics.checks_resemblance import resemblance
from pytest_vllm_gates.numerics.client import dtype
from pytest_vllm_gates.numerics.types import Scores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.numerics.forced_types import ForcedRun

RECORDED = Path(__file__).parent / "recorded" / "equivalence.jsonl"
MODELS = ("qwen3.5", "glm", "deepseek", "gemma")
MOST_TOKENS = 4096
WANTED = 0.99
MORE_TEXTS = (16, 32, 64, 128, 256)
QUESTIONS = 1319
"""The questions of GSM8K's test (Cobbe et al., Training Verifiers to Solve Math Word Problems,
2021)."""
SIGMAS = 1.96


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    change: str
    nats: float
    found: float
    """The share of the orders in which it is found."""
    median_tokens: float | None
    odds: float
    looks: str
    by_tolerances: bool
    other_answers: int
    answers: int
    right_before: float
    right_after: float
    by_evaluation: bool
    orders: int
    build: str
    machine: str
    day: str
    load: float
    enough_tokens: float | None = None
    """The tokens that find it in 99 % of the trials, by resampling; None if not known."""

    def markdown(self) -> str:
        """Return it as a line of a table."""
        after = f"{self.median_tokens:,.0f}" if self.median_tokens is not None else "-"
        if self.enough_tokens:
            after = f"{after} (about {self.enough_tokens:,.0f} are enough)"
        evaluation = "sees it" if self.by_evaluation else "passes"
        smoke = f"{self.other_answers} of {self.answers} differ" if self.other_answers else "passes"
        return (
            f"| {self.model} | {self.change} | {self.nats:.4f} | {self.found:.0%} | {after} | "
            f"{self.odds:.0e} | {'see it' if self.by_tolerances else 'pass'} | {smoke} | "
            f"{evaluation} ({self.right_before:.1%}, {self.right_after:.1%}) |"
        )


HEAD = (
    "| model | silent change | nats apart | found within 4,096 tokens | after tokens, median | "
    "odds over all texts | tolerances | smoke test | evaluation |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def tokens_to_find(trusted: ForcedRun, now: ForcedRun, orders: int) -> Iterator[int | None]:
    """Yield the number of tokens after which it is different, for each order of the texts."""
    shuffle = random.Random(31)  # noqa: S311 - the same orders in every run
    texts = [*now.texts]
    for _ in range(orders):
        shuffle.shuffle(texts)
        looks, found = len(texts) - LEAST_TEXTS + 1, None
        for count in range(LEAST_TEXTS, len(texts) + 1):
            part = replace(now, texts=tuple(texts[:count]))
            if part.tokens > MOST_TOKENS:
                break
            comparisons = compare(trusted, part, looks=looks)
            if any(each.answer is Equivalence.DIFFERENT for each in comparisons):
                found = part.tokens
                break
        yield found


def _of_texts(run: ForcedRun, chosen: Sequence[int]) -> ForcedRun:
    texts = (replace(run.texts[at], name=str(number)) for number, at in enumerate(chosen))
    return replace(run, texts=tuple(texts))


def tokens_enough(trusted: ForcedRun, now: ForcedRun, trials: int) -> float | None:
    """Return the number of tokens that finds it in `WANTED` of the trials, by resampling texts."""
    chance = random.Random(31)  # noqa: S311 - the same draws in every run
    for count in MORE_TEXTS:
        hits = tokens = 0
        for _ in range(trials):
            drawn = [chance.randrange(len(now.texts)) for _ in range(count)]
            one, other = (_of_texts(run, drawn) for run in (trusted, now))
            hits += any(each.answer is Equivalence.DIFFERENT for each in compare(one, other))
            tokens += other.tokens
        if hits >= WANTED * trials:
            return tokens / trials
    return None


def evaluation(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, float, bool]:
    """Return the shares of right answers, and whether they differ significantly."""
    chosen = random.Random(31).sample(range(len(before)), min(QUESTIONS, len(before)))  # noqa: S311
    one, other = (statistics.fmean(right[at] for at in chosen) for right in (before, after))
    error = math.sqrt((one * (1 - one) + other * (1 - other)) / len(chosen))
    return one, other, abs(one - other) >= SIGMAS * error > 0


def seen_by_tolerances(model: str, dtype_: str, now: Scored) -> bool:
    """Return whether the fixed tolerances of the gate find it in the prompts."""
    tolerance = tolerance_of(dtype_)
    cases = reference(model).cases.values()
    return any(
        prompt_distance(Scores(case.prompt, scores, (), ()), case).faults(tolerance)
        for scores, case in zip(now.cases, cases, strict=True)
    )


def row(machine: Machine, change: Change, trusted: Scored, now: Scored, orders: int) -> Row:
    """Return the results of a change."""
    runs = trusted.runs[ONCE], now.runs[ONCE]
    comparisons = compare(*runs)
    first = min(comparisons, key=lambda each: each.odds)
    different = any(each.answer is Equivalence.DIFFERENT for each in comparisons)
    tokens = [*tokens_to_find(*runs, orders)]
    hits = [count for count in tokens if count is not None]
    before, after, apart = evaluation(trusted.right, now.right)
    other = sum(one != two for one, two in zip(trusted.answers, now.answers, strict=True))
    here = inspect()
    found = len(hits) / len(tokens)
    missed = found < WANTED and change is not AGAIN
    return Row(
        machine.model, change.name, nats=first.nats, found=found,
        median_tokens=statistics.median(hits) if hits else None, odds=first.odds,
        looks=resemblance(*runs, comparisons) if different else "",
        by_tolerances=seen_by_tolerances(machine.model, dtype(machine.checkpoint), now),
        other_answers=other, answers=len(now.answers), right_before=before, right_after=after,
        by_evaluation=apart, orders=orders, build=runs[1].build,
        machine=f"{here.cpu}, {here.cores} cores",
        day=datetime.datetime.now(datetime.UTC).date().isoformat(),
        load=round(os.getloadavg()[0], 1),
        enough_tokens=tokens_enough(*runs, orders) if missed else None,
    )  # fmt: skip


def rows(model: str, orders: int, names: Sequence[str]) -> Iterator[Row]:
    """Measure every kind of change on a family, up to the first size that is found."""
    machine = Machine(model)
    kinds = [kind for kind in KINDS if not names or any(name in kind[0].name for name in names)]
    trusted: Scored | None = None
    step = 0
    while kinds:
        changes = [kind[step] for kind in kinds]
        left = []
        for change, now in machine.run([*([] if trusted else [TRUSTED]), *changes]):
            if change is TRUSTED:
                trusted = now
                continue
            if trusted is None:
                print(f"{model}: the trusted engine did not start", flush=True)
                return
            kind = kinds[changes.index(change)]
            if now is None:
                print(f"{model}, {change.name}: it does not start", flush=True)
                left.append(kind)
                continue
            made = row(machine, change, trusted, now, orders)
            print(f"{made.markdown()} {made.looks.partition(':')[0]}", flush=True)
            yield made
            if change is not AGAIN and made.found < WANTED:
                left.append(kind)
        step += 1
        kinds = [kind for kind in left if len(kind) > step]


def recorded() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the recorded results by model and change; later ones replace earlier ones."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    return {(line["model"], line["change"]): line for line in map(json.loads, lines)}


def main() -> int:
    """Measure every change on every family and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", action="append")
    parser.add_argument("--only", action="append", default=[], help="part of a change's name")
    parser.add_argument("--orders", type=int, default=100)
    parser.add_argument("--save", action="store_true", help=f"append to recorded/{RECORDED.name}")
    parser.add_argument("--table", action="store_true", help="print the recorded results")
    options = parser.parse_args()
    print(HEAD)
    if options.table:
        print("\n".join(Row(**line).markdown() for line in recorded().values()))
        return 0
    # The same texts are compared again in each order.
    checks_paired.distance = functools.cache(checks_paired.distance)
    missed = accused = False
    for model in options.model or MODELS:
        for made in rows(model, options.orders, options.only):
            again = made.change == AGAIN.name
            accused |= again and bool(made.looks)
            missed |= not again and made.found < WANTED
            if options.save:
                with RECORDED.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(made)) + "\n")
    return int(accused or missed)


if __name__ == "__main__":
    sys.exit(main())
