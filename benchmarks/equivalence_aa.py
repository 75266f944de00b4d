"""Measures how often equal servers are judged different, by resampling recorded runs.

    python benchmarks/equivalence_aa.py                          1,000 of each recorded condition
    python benchmarks/equivalence_aa.py --record --model glm     measure again: starts real vLLM

`recorded/equivalence_MODEL.json` has the scores of vLLM's engine for the forced texts, in hundred
thousandths of a nat: a trusted run (lane `cpu`), and runs under harmless conditions: a second
start, the same engine again (a warm prefix), the same engine during four other requests (another
batch), one thread, two ranks (lane `cpu-tp2`), the lane `cpu-previous`, and the kernels of a
processor without AVX-512, which simulate another machine; and the scores of transformers in fp32.

A comparison draws as many texts as there are, with replacement, and from each a stretch of half its
tokens, which keeps the dependence of neighbouring tokens. The trusted run of the two is drawn, too.
It is judged as in the gate, with the rounding against fp32 if the builds or machines differ.
`other machine, by its scale` is judged by the lane's scale, measured on a half of the texts and
applied to the other half. Exits 1 if any comparison is different.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silent_changes import (  # type: ignore[import-not-found, unused-ignore]
    ONCE,
    TRUSTED,
    Change,
    Machine,
)

from pytest_vllm_gates.machine.inspect import inspect
from pytest_vllm_gates.numerics import checks_paired
from pytest_vllm_gates.numerics.checks_paired import Equivalence, compare, distance
from pytest_vllm_gates.numerics.checks_scale import between_machines
from pytest_vllm_gates.numerics.client import compute
from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = Path(__file__).parent / "recorded"
MODELS = ("qwen3.5", "glm", "deepseek", "gemma")
UNIT = 1e-5
"""The unit of the recorded values in nats: goldens have the same number of digits."""
STEP = 16
"""Stretches begin at multiples of this."""
SECOND = Change("second start")
OTHER_MACHINE = Change("other machine", silent="avx2", alone=True)
APART = (
    Change("one thread", env={"OMP_NUM_THREADS": "1"}, alone=True),
    Change("two ranks", lane="cpu-tp2", flag=("distributed_executor_backend", "mp")),
    Change("vLLM 0.30.0", lane="cpu-previous"),
    OTHER_MACHINE,
)
"""Each in a separate process."""
BY_SCALE = "other machine, by its scale"


def record(model: str) -> None:
    """Run every condition and write its scores."""
    cpu = inspect().cpu
    runs: dict[str, ForcedRun] = {}
    machine = Machine(model)
    for change, scored in machine.run([TRUSTED, SECOND], again=True):
        if scored is None:
            sys.exit(f"{model}, {change.name}: it does not start")
        runs |= {name: run for name, run in scored.runs.items() if name != ONCE}
        runs[change.name] = replace(scored.runs[ONCE], machine=cpu)
    for change in APART:
        where = f"{cpu} without AVX-512" if change.silent else cpu
        for _, scored in Machine(model, change.lane).run([change]):
            if scored is None:
                print(f"{model}, {change.name}: it does not start", flush=True)
                continue
            runs[change.name] = replace(scored.runs[ONCE], machine=where)
    trusted = runs.pop(TRUSTED.name)
    prompts = {text.name: (text.ids, 1) for text in trusted.texts}
    assert machine.ready.python  # noqa: S101 - the lane has a lock
    exact = compute(machine.checkpoint, machine.ready.python, machine.lane.overlay_path, prompts)
    content = {
        "model": model,
        "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{cpu}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "fp32_by": exact.source,
        "trusted": as_recorded(trusted, None),
        "fp32": {
            text.name: apart(exact.cases[text.name].prompt_logprobs, text.alone)
            for text in trusted.texts
        },
        "runs": {
            name: as_recorded(replace(run, machine=cpu) if run.machine == "this" else run, trusted)
            for name, run in runs.items()
        },
    }
    text = json.dumps(content, separators=(",", ":")).replace('"name":', '\n"name":')
    path_of(model).write_text(text + "\n", encoding="utf-8")
    print(f"{model}: {len(runs)} runs, {path_of(model).stat().st_size / 1000:.0f} kB", flush=True)


def path_of(model: str) -> Path:
    """Return the file of a family's recorded runs."""
    return FOLDER / f"equivalence_{model.replace('/', '-')}.json"


def apart(values: Sequence[float], of: Sequence[float]) -> list[int]:
    """Return values as differences from the trusted run, in whole units."""
    return [round(a / UNIT) - round(b / UNIT) for a, b in zip(values, of, strict=True)]


def as_recorded(run: ForcedRun, trusted: ForcedRun | None) -> dict[str, Any]:
    """Return a run as JSON, without the ids, which a comparison does not need."""
    texts = trusted.texts if trusted else run.texts
    return {
        "build": run.build,
        "machine": run.machine,
        "texts": [
            {
                "name": text.name,
                "alone": apart(text.alone, of.alone if trusted else [0.0] * len(text.alone)),
                "together": apart(text.together, of.together if trusted else text.alone),
                "answer": text.answer,
                "answer_logprobs": [round(value / UNIT) for value in text.answer_logprobs],
            }
            for text, of in zip(run.texts, texts, strict=True)
        ],
    }


def as_run(content: Mapping[str, Any], trusted: ForcedRun | None) -> ForcedRun:
    """Read what `as_recorded` returns."""

    def added(offsets: Sequence[int], to: Sequence[float]) -> tuple[float, ...]:
        return tuple(value + UNIT * more for value, more in zip(to, offsets, strict=True))

    texts = []
    for at, entry in enumerate(content["texts"]):
        alone = trusted.texts[at].alone if trusted else (0.0,) * len(entry["alone"])
        mine = added(entry["alone"], alone)
        texts.append(
            ForcedText(
                entry["name"], tuple(range(len(mine) + 1)), mine,
                added(entry["together"], trusted.texts[at].together if trusted else mine),
                tuple(entry["answer"]), tuple(UNIT * value for value in entry["answer_logprobs"]),
            )
        )  # fmt: skip
    return ForcedRun("one", content["build"], content["machine"], tuple(texts))


def stretch(text: ForcedText, begin: int, length: int, name: str) -> ForcedText:
    """Return a part of a text under another name."""
    end = begin + length
    return replace(
        text, name=name, ids=text.ids[begin : end + 1], alone=text.alone[begin:end],
        together=text.together[begin:end],
    )  # fmt: skip


def resampled(
    runs: tuple[ForcedRun, ForcedRun], fp32: Sequence[Sequence[float]], chance: random.Random
) -> tuple[ForcedRun, ForcedRun, dict[str, float]]:
    """Draw texts and a stretch of each; return both runs of them, and the rounding by text."""
    trusted, now = chance.sample(runs, 2)
    pairs: list[tuple[ForcedText, ForcedText]] = []
    rounding = {}
    for number in range(len(trusted.texts)):
        at = chance.randrange(len(trusted.texts))
        tokens = len(trusted.texts[at].alone)
        begin = STEP * chance.randrange(tokens // 2 // STEP + 1)
        name = f"{number}"
        one, other = (stretch(run.texts[at], begin, tokens // 2, name) for run in (trusted, now))
        pairs.append((one, other))
        rounding[name] = distance(one.alone, tuple(fp32[at][begin : begin + tokens // 2]))
    ours, theirs = zip(*pairs, strict=True)
    return replace(trusted, texts=tuple(ours)), replace(now, texts=tuple(theirs)), rounding


def halves(run: ForcedRun, chosen: Sequence[int]) -> tuple[ForcedRun, ForcedRun]:
    """Return the chosen texts of a run, and the others."""
    mine = tuple(text for at, text in enumerate(run.texts) if at in chosen)
    rest = tuple(text for at, text in enumerate(run.texts) if at not in chosen)
    return replace(run, texts=mine), replace(run, texts=rest)


def answers(
    runs: tuple[ForcedRun, ForcedRun], fp32: Sequence[Sequence[float]], count: int
) -> Counter[Equivalence]:
    """Return the answers of resampled comparisons: each is the worst of the phases."""
    chance = random.Random(31)  # noqa: S311 - the same in every run
    return Counter(worst(*resampled(runs, fp32, chance)) for _ in range(count))


def answers_by_scale(runs: tuple[ForcedRun, ForcedRun], count: int) -> Counter[Equivalence]:
    """Return the same with a scale from a half of the texts, applied to the other half."""
    chance = random.Random(31)  # noqa: S311 - the same in every run
    came: Counter[Equivalence] = Counter()
    for _ in range(count):
        trusted, now = chance.sample(runs, 2)
        chosen = chance.sample(range(len(trusted.texts)), len(trusted.texts) // 2)
        (mine, rest), (my_now, now_rest) = halves(trusted, chosen), halves(now, chosen)
        scale = between_machines(mine, my_now)
        came[worst(rest, now_rest, {}, scale)] += 1
    return came


def worst(*arguments: Any) -> Equivalence:
    """Return the answer that counts of a comparison."""
    came = {each.answer for each in compare(*arguments)}
    order = (Equivalence.DIFFERENT, Equivalence.UNKNOWN, Equivalence.EQUIVALENT)
    return next(answer for answer in order if answer in came)


def main() -> int:
    """Record runs, or resample recorded runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", action="append")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    alarms = 0
    # The same stretches are drawn repeatedly.
    checks_paired.distance = functools.cache(checks_paired.distance)
    models = options.model or [model for model in MODELS if path_of(model).exists()]
    print("| model | harmless change | nats apart | different | cannot tell | equivalent |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in models:
        if options.record:
            record(model)
        content = json.loads(path_of(model).read_text(encoding="utf-8"))
        trusted = as_run(content["trusted"], None)
        fp32 = [
            [value + UNIT * more for value, more in zip(text.alone, offsets, strict=True)]
            for text, offsets in zip(trusted.texts, content["fp32"].values(), strict=True)
        ]
        for name, recorded in content["runs"].items():
            runs = trusted, as_run(recorded, trusted)
            nats = max(each.nats for each in compare(*runs))
            came = {name: answers(runs, fp32, options.count)}
            if name == OTHER_MACHINE.name:
                came[BY_SCALE] = answers_by_scale(runs, options.count)
            for title, counts in came.items():
                figures = [counts[each] for each in (Equivalence.DIFFERENT, Equivalence.UNKNOWN,
                                                     Equivalence.EQUIVALENT)]  # fmt: skip
                alarms += figures[0]
                cells = " | ".join(f"{figure:,}" for figure in figures)
                print(f"| {model} | {title} | {nats:.4f} | {cells} |", flush=True)
    print(f"{alarms} alarms")
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
