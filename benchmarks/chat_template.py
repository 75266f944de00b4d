"""Measures the time of the chat_template gate: compared with a boot, and on long prompts.

    python benchmarks/chat_template.py --rounds 3 [--model qwen3.5]

In turns, the family's server is booted bare (no pytest; until its first answered chat) and the gate
is run alone, renderer included. Then a template of 20 kB is rendered, and a conversation of 100,000
tokens is rendered by reference and renderer, tokenised by both and compared. Exits 1 if the
conversations take more than 2 s besides the start, or the gate alone more than half of a bare boot.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overhead import LANE, bare_boot_s, boot  # type: ignore[import-not-found, unused-ignore]

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.client import http
from pytest_vllm_gates.goldens import first_difference, prompt_golden
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.client.endpoint import Endpoint

MODEL = "qwen3.5"
CONVERSATIONS_LIMIT_S = 2.0
RATIO_LIMIT = 0.5
TOKENS = 100_000
TEMPLATE_BYTES = 20_000
UNIT = "{%- macro unused_NUMBER(text) -%}{{- text | trim | upper -}}{%- endmacro -%}\n"
SENTENCE = "The quick brown fox jumps over the lazy dog, again and again. "


OF_A_CONVERSATION = (
    "test_prompt_is_the_recorded",
    "test_server_renders_as_the_reference",
    "test_every_turn_has_its_marker",
)


@dataclass(frozen=True)
class Run:
    """One run of the gate alone: seconds in total, of its renderer's start, of the conversations.

    The rest is pytest, preflight, loading the tokenizer, and random conversations.
    """

    wall_s: float
    start_s: float
    conversations_s: float


def run_gate(model: str, folder: Path) -> Run:
    """Run the gate in an empty folder."""
    argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report"]
    started = time.monotonic()
    process = subprocess.run(
        [*argv, "--model", model, "--lane", LANE, "-m", "chat_template"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall_s = time.monotonic() - started
    verdict = json.loads((folder / "report" / "verdict.json").read_text(encoding="utf-8"))
    (family,) = verdict["families"]
    (gate,) = [
        gate_report for gate_report in family["gates"] if gate_report["gate"] == "chat_template"
    ]
    if gate["outcome"] != "PASS":
        raise SystemExit(process.stdout)
    start_s = family["boot"]["times"]["first_chat_s"]
    conversations_s = sum(
        test["duration_s"]
        for test in gate["tests"]
        if test["test"].partition("[")[0] in OF_A_CONVERSATION
    )
    return Run(wall_s, start_s, conversations_s)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and its seconds."""
    started = time.monotonic()
    result = call()
    return result, time.monotonic() - started


def long_ones(model: str, endpoint: Endpoint) -> str:
    """Render, tokenise and compare a long conversation, and render by a long template."""
    family = families.load(model, Path())
    checkpoint = checkpoints_resolve.resolve(family, "miniature")
    reference = ReferenceRenderer(checkpoint, {})
    sentence_tokens = len(reference.token_ids(2 * SENTENCE)) - len(reference.token_ids(SENTENCE))
    times = TOKENS // sentence_tokens + 1
    body = {"messages": [{"role": "user", "content": SENTENCE * times}]}
    prompt, own_s = timed(lambda: reference.render(body))
    served, server_s = timed(lambda: http.tokenize(endpoint, body))
    golden, golden_s = timed(lambda: prompt_golden("long", prompt))
    if first_difference(prompt, served):
        raise SystemExit("the long conversation is rendered differently")
    template = reference.locked_parts()["chat template"].decode()
    number = 0
    while len(template.encode()) < TEMPLATE_BYTES:
        template = UNIT.replace("NUMBER", str(number)) + template
        number += 1
    longer, made_s = timed(lambda: ReferenceRenderer(checkpoint, {"chat_template": template}))
    short = {"messages": [{"role": "user", "content": SENTENCE}]}
    text, render_s = timed(lambda: longer.render(short))
    if text != reference.render(short):
        raise SystemExit("the long template is rendered differently")
    return (
        f"{len(prompt.token_ids)} tokens: reference {own_s:.2f} s, renderer {server_s:.2f} s, "
        f"golden {golden_s:.2f} s, {len(golden) // 1000} kB   template of "
        f"{len(template.encode()) // 1000} kB: loaded in {made_s:.2f} s, rendered in "
        f"{1000 * render_s:.1f} ms"
    )


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default=MODEL)
    options = parser.parse_args()
    bare_s: list[float] = []
    runs: list[Run] = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            bare_s.append(bare_boot_s(Path(folder)))
            runs.append(run_gate(options.model, Path(folder)))
        run = runs[-1]
        print(
            f"bare boot {bare_s[-1]:5.1f} s   gate alone {run.wall_s:5.1f} s, of it renderer "
            f"{run.start_s:5.1f} s, conversations {run.conversations_s:.2f} s",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as folder:
        server = boot(options.model, Path(folder), renderer=True)
        try:
            assert server.boot.endpoint  # noqa: S101 - or it had ended
            print(long_ones(options.model, server.boot.endpoint))
        finally:
            server.stop()
    conversations_s = statistics.median(run.conversations_s for run in runs)
    ratio = statistics.median(run.wall_s for run in runs) / statistics.median(bare_s)
    print(
        f"median of {options.rounds}: conversations {conversations_s:.2f} s beside the start (at "
        f"most {CONVERSATIONS_LIMIT_S:.0f})   gate alone / bare boot = {ratio:.2f} (at most "
        f"{RATIO_LIMIT})"
    )
    return 0 if conversations_s <= CONVERSATIONS_LIMIT_S and ratio <= RATIO_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
