"""Which silent change of a server is found in how many tokens, beside what tolerances see of it.

    python benchmarks/equivalence.py                       four families' miniatures, ten minutes
    python benchmarks/equivalence.py --model qwen3.5 --orders 100

Real vLLM is booted as it is (twice: the second boot is an A/A comparison), and once for each fault,
with an edited checkpoint or a flag that is not declared. The forced texts go through each. Printed
are, for each fault, the mean distance in nats, the share of `--orders` random orders of the texts
in which it is different within 4,096 tokens, the median of the tokens that this took, the odds over
all texts, and whether the fixed tolerances of `numerics.toml` see it. Exits 1 where the second boot
is different.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.client import http
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.goldens import whole
from pytest_vllm_gates.numerics import forced
from pytest_vllm_gates.numerics.checks import parsed, prompt_distance, tolerance_of
from pytest_vllm_gates.numerics.checks_paired import LEAST_TEXTS, Equivalence, compare
from pytest_vllm_gates.numerics.checks_resemblance import resemblance
from pytest_vllm_gates.numerics.client import dtype, served_scores
from pytest_vllm_gates.server.launch import LaunchPlan, Server
from pytest_vllm_gates.server.patience import BootLimits
from pytest_vllm_gates.session.golden_files import shipped_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.numerics.forced_types import ForcedRun

HERE = Path(__file__).parent
MODELS = ("qwen3.5", "glm", "deepseek", "gemma")
LANE = "cpu"
MOST_TOKENS = 4096
ROUNDED = HERE / "rounded_weights.py"
NOTHING_TO_CHANGE = 3
"""Its exit status where a checkpoint has none of what was to be changed."""


@dataclass(frozen=True)
class Change:
    """How a server differs from the trusted one: numbers of `config.json`, weights, or a flag."""

    name: str
    number: tuple[str, float, float] | None = None
    """A name of `config.json`, its factor, and what is added then."""
    weights: str | None = None
    flag: tuple[str, Any] | None = None


CHANGES = (
    Change("the same again"),
    Change("FP8 KV cache", flag=("kv_cache_dtype", "fp8")),
    Change("FP8 weights", weights="fp8"),
    Change("INT8 weights", weights="int8"),
    Change("INT4 weights", weights="int4"),
    Change("one attention head x 1.01", weights="head"),
    Change("two experts swapped", weights="experts"),
    Change("rope_theta x 0.99", number=("rope_theta", 0.99, 0)),
    Change("rope_theta x 1.01", number=("rope_theta", 1.01, 0)),
    Change("sliding window - 1", number=("sliding_window", 1, -1)),
    Change("norm epsilon x 100", number=("rms_norm_eps", 100, 0)),
)


@dataclass(frozen=True)
class Served:
    """What a server said of the forced texts, and whether the tolerances see that it is off."""

    run: ForcedRun
    seen_by_tolerances: bool


def changed(table: dict[str, Any], name: str, factor: float, more: float) -> int:
    """Change every number of this name, at any depth; return how many there were."""
    found = 0
    for key, value in table.items():
        if isinstance(value, dict):
            found += changed(value, name, factor, more)
        elif key == name and isinstance(value, int | float):
            table[key] = value * factor + more
            found += 1
    return found


def edited(source: Path, folder: Path, change: Change, python: Path | None) -> Path | None:
    """Return a copy of a checkpoint with the change made; None where it has nothing to change."""
    copy = shutil.copytree(source, folder / "checkpoint")
    config = copy / "config.json"
    content = json.loads(config.read_text(encoding="utf-8"))
    if change.number and not changed(content, *change.number):
        return None
    config.write_text(json.dumps(content), encoding="utf-8")
    if change.weights:
        argv = [str(python), str(ROUNDED), str(copy), change.weights]
        status = subprocess.run(argv, check=False).returncode
        if status == NOTHING_TO_CHANGE:
            return None
        if status:
            sys.exit(f"{change.name}: {ROUNDED.name} ended with {status}")
    return copy


def serve(model: str, change: Change) -> Served | None:
    """Boot a family's miniature with a change and ask it everything; None where it cannot be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        family, lane = families.load(model, folder), lanes.load(LANE, folder)
        ready = environment.prepare(lane, cache=files.default_cache(), progress=print)
        checkpoint = checkpoints_resolve.resolve(family, lane.checkpoint)
        reference = shipped_root() / model / "main" / "miniature" / "numerics.txt"
        if change.flag:
            lane = lane.model_copy(update={"serve": {**lane.serve, change.flag[0]: change.flag[1]}})
        if change.number or change.weights:
            copy = edited(Path(checkpoint.source), folder, change, ready.python)
            if copy is None:
                return None
            checkpoint = replace(checkpoint, source=str(copy))
        server = Server(
            LaunchPlan(
                family=family, lane=lane, checkpoint=checkpoint, python=ready.python,
                overlay=lane.overlay_path, folder=folder / "server",
                limits=BootLimits(boot_s=1800, stall_s=300),
            ),
            lambda _: None,
        )  # fmt: skip
        try:
            endpoint = server.boot.endpoint
            if endpoint is None:
                print(f"{model}, {change.name}: it does not boot")
                return None
            run = forced.measure(
                endpoint, http.context(endpoint, 4096), weights="unknown", build="one",
                machine="this", serve={},
            )  # fmt: skip
            tolerance = tolerance_of(dtype(checkpoint))
            cases = parsed(whole(reference, reference.read_bytes())).cases.values()
            seen = any(
                prompt_distance(
                    served_scores(endpoint, case.prompt, 1, score_prompt=True), case
                ).faults(tolerance)
                for case in cases
            )
            return Served(run, seen)
        finally:
            server.stop()


def tokens_to_find(trusted: ForcedRun, now: ForcedRun, orders: int) -> Iterator[int | None]:
    """Yield after how many tokens it is different, in so many orders of the texts."""
    shuffle = random.Random(31)  # noqa: S311 - the same orders in every run
    texts = [*now.texts]
    for _ in range(orders):
        shuffle.shuffle(texts)
        found = None
        for count in range(LEAST_TEXTS, len(texts) + 1):
            part = replace(now, texts=tuple(texts[:count]))
            if part.tokens > MOST_TOKENS:
                break
            if any(each.answer is Equivalence.DIFFERENT for each in compare(trusted, part)[:1]):
                found = part.tokens
                break
        yield found


def main() -> int:
    """Measure every change on every family and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--orders", type=int, default=100)
    options = parser.parse_args()
    accused = False
    for model in options.model or MODELS:
        trusted = serve(model, Change("trusted"))
        if trusted is None:
            return 1
        for change in CHANGES:
            now = serve(model, change)
            if now is None:
                print(f"{model:9} {change.name:27} nothing to change here", flush=True)
                continue
            comparisons = compare(trusted.run, now.run)
            different = any(each.answer is Equivalence.DIFFERENT for each in comparisons)
            found = [*tokens_to_find(trusted.run, now.run, options.orders)]
            tokens = [count for count in found if count is not None]
            share = len(tokens) / len(found)
            median = f"{statistics.median(tokens):5.0f} tokens" if tokens else "           -"
            looks = resemblance(trusted.run, now.run, comparisons) if different else ""
            print(
                f"{model:9} {change.name:27} {comparisons[0].nats:.4f} nats  found {share:4.0%}  "
                f"{median}  odds {comparisons[0].odds:.0e}  tolerances "
                f"{'see it' if now.seen_by_tolerances else 'pass'}  {looks.partition(':')[0]}",
                flush=True,
            )
            accused |= different and change is CHANGES[0]
    return int(accused)


if __name__ == "__main__":
    sys.exit(main())
