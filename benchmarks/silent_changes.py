"""The silent changes, as data, and vLLM's engine with each of them, run as jobs.

One process of the lane's interpreter imports vLLM and forks for each job (`forced_program.py`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, flags, lane as lanes, toml
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.environment.overlay import lane_environment
from pytest_vllm_gates.goldens import whole
from pytest_vllm_gates.numerics import forced
from pytest_vllm_gates.numerics.checks import parsed
from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText
from pytest_vllm_gates.session.golden_folders import shipped_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.numerics.types import ReferenceScores

HERE = Path(__file__).parent
PROGRAM = HERE / "forced_program.py"
SILENT = HERE / "silent"
POLL_S = 0.2
ONCE, WARM, BATCH = "once", "warm prefix", "another batch"


@dataclass(frozen=True)
class Change:
    """The difference of an engine from the trusted one; its requests stay the same."""

    name: str
    number: tuple[str, float, float] | None = None
    """A name of `config.json`, its factor, and the value added then."""
    weights: str | None = None
    """The change by `rounded_weights.py`."""
    flag: tuple[str, Any] | None = None
    silent: str = ""
    """The change by `silent/silent_change.py`."""
    alone: bool = False
    """Whether it must be made before torch is imported."""
    lane: str = "cpu"
    env: Mapping[str, str] = field(default_factory=dict)


TRUSTED = Change("trusted")
AGAIN = Change("the same again")
KINDS: tuple[tuple[Change, ...], ...] = (
    (AGAIN,),
    (
        Change("FP8 KV cache", flag=("kv_cache_dtype", "fp8")),
        Change("FP8 MLA cache", silent="cache"),
    ),
    (Change("FP8 weights", weights="fp8"),),
    (Change("INT8 weights", weights="int8"),),
    (Change("INT4 weights", weights="int4"),),
    tuple(
        Change(f"`rope_theta` x {factor}", number=("rope_theta", factor, 0))
        for factor in (0.99, 0.9, 0.5)
    ),
    tuple(
        Change(f"`rope_theta` x {factor}", number=("rope_theta", factor, 0))
        for factor in (1.01, 1.1, 2.0)
    ),
    tuple(
        Change(f"one layer's norm epsilon x {factor:,}", silent=f"epsilon={factor}")
        for factor in (100, 1_000, 10_000, 100_000)
    ),
    (Change("two experts swapped", weights="experts"),),
    tuple(
        Change(f"sliding window - {less}", number=("sliding_window", 1, -less))
        for less in (1, 2, 8)
    ),
    tuple(
        Change(f"one attention head x {factor}", weights=f"head={factor}")
        for factor in (1.01, 1.02, 1.05, 1.1)
    ),
)  # fmt: skip
"""Each kind in increasing size: the next size counts if one is not found or not possible."""


@dataclass(frozen=True)
class Scored:
    """The result of a job."""

    runs: dict[str, ForcedRun]
    """The scores of the forced texts: `once`, and on request on a warm prefix and in a batch."""
    cases: tuple[tuple[float, ...], ...]
    """The scores of the prompts of the shipped `numerics.txt`."""
    answers: tuple[tuple[int, ...], ...]
    """The greedy answers to the same prompts."""
    right: tuple[bool, ...]
    """For each token of the same prompts, whether it is the likeliest."""


def reference(model: str) -> ReferenceScores:
    """Return the shipped scores of fp32 transformers."""
    member = model if "/" in model else f"{model}/main"
    path = shipped_root() / member / "miniature" / "numerics.txt"
    return parsed(whole(path, path.read_bytes()))


def changed(table: dict[str, Any], name: str, factor: float, more: float) -> int:
    """Change every number of this name, at any depth; return how many there were."""
    found = 0
    for key, value in table.items():
        if isinstance(value, dict):
            found += changed(value, name, factor, more)
        elif key == name and isinstance(value, int | float):
            table[key] = type(value)(value * factor + more)
            found += 1
    return found


def edited(source: Path, folder: Path, change: Change) -> Path | None:
    """Return a copy of a checkpoint with another config; None if it has no such number."""
    copy = shutil.copytree(source, folder)
    config = copy / "config.json"
    content = json.loads(config.read_text(encoding="utf-8"))
    if change.number and not changed(content, *change.number):
        return None
    config.write_text(json.dumps(content), encoding="utf-8")
    return copy


class Machine:
    """A family's miniature on a lane's vLLM, used by jobs."""

    def __init__(self, model: str, lane: str = "cpu") -> None:
        self.model = model
        self.family = families.load(model, HERE)
        self.lane: Lane = lanes.load(lane, HERE)
        self.ready: Environment = environment.prepare(
            self.lane, cache=files.default_cache(), progress=print
        )
        self.checkpoint: Checkpoint = checkpoints_resolve.resolve(self.family, "miniature")

    def run(
        self, changes: Sequence[Change], *, again: bool = False
    ) -> Iterator[tuple[Change, Scored | None]]:
        """Yield the result of each change; None if the engine does not start.

        A change that has nothing to change is left out. With `again`, the first also runs on a
        warm prefix and in another batch.
        """
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            jobs: list[dict[str, Any]] = []
            made: list[Change] = []
            for number, change in enumerate(changes):
                source = Path(self.checkpoint.source)
                if change.number or change.weights:
                    copy = edited(source, folder / f"copy{number}", change)
                    if copy is None:
                        continue
                    source = copy
                jobs.append(self._job(change, source, again=again and not jobs))
                made.append(change)
            (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
            argv = [str(self.ready.python), str(PROGRAM), str(folder / "jobs.json"), name]
            with (
                Path(folder, "log").open("w", encoding="utf-8") as log,
                subprocess.Popen(argv, env=self._env(changes), stdout=log, stderr=log) as program,
            ):
                for number, change in enumerate(made):
                    path, failed = folder / f"{number}.json", folder / f"{number}.failed"
                    while not (path.exists() or failed.exists() or program.poll() is not None):
                        time.sleep(POLL_S)
                    if not path.exists():
                        print(_why(folder / "log"), flush=True)
                        yield change, None
                    elif scored := self._scored(path, change):
                        yield change, scored

    def _env(self, changes: Sequence[Change]) -> dict[str, str]:
        """Return the variables of a program, and of a change that needs its own program."""
        # Waiting threads must not spin, which would take most of the time of a busy machine.
        env = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_WAIT_POLICY": "passive"}
        (first, *_) = changes
        if first.alone:
            env |= dict(first.env)
            if first.silent:
                env["SILENT_CHANGE"] = first.silent
        python, overlay = self.ready.python, self.lane.overlay_path
        env = lane_environment(self.lane, python, overlay, env)
        env["PYTHONPATH"] += f":{SILENT}"
        return env

    def _job(self, change: Change, source: Path, *, again: bool) -> dict[str, Any]:
        served = flags.merged(
            {"model": str(source), "served_model_name": self.family.name},
            flags.serving(self.family, self.checkpoint, self.lane),
            {"distributed_executor_backend": "uni"},
            dict([change.flag] if change.flag else []),
        )
        texts = toml.load(forced.FILE, forced.Texts).texts
        cases = reference(self.model).cases.values()
        return {
            "name": f"{self.model}, {change.name}",
            "argv": flags.command_line(served),
            "folder": str(source),
            "weights": change.weights,
            "silent": "" if change.alone else change.silent,
            "texts": {text.name: text.text * text.repeat for text in texts},
            "cases": [{"prompt": case.prompt, "count": len(case.output)} for case in cases],
            "again": again,
        }

    def _scored(self, path: Path, change: Change) -> Scored | None:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content is None:
            return None
        env = {**self.lane.env, **change.env}
        build = forced.build(self.ready.vllm or "?", self.ready.versions, self.lane.serve, env)
        runs = {
            name: ForcedRun("one", build, "this", tuple(_text(*entry) for entry in texts.items()))
            for name, texts in content["runs"].items()
        }
        return Scored(
            runs,
            tuple(tuple(case["prompt_logprobs"]) for case in content["cases"]),
            tuple(tuple(case["answer"]) for case in content["cases"]),
            tuple(right for case in content["cases"] for right in case["right"]),
        )


def _text(name: str, entry: Mapping[str, Any]) -> ForcedText:
    return ForcedText(
        name, tuple(entry["ids"]), tuple(entry["alone"]), tuple(entry["together"]),
        tuple(entry["answer"]), tuple(entry["answer_logprobs"]),
    )  # fmt: skip


def _why(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if "Error" in line]
    return f"it does not start: {(errors or lines or ['no line'])[-1][:300]}"
