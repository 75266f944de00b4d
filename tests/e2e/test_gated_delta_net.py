"""The fp32 reference of Qwen 3.5 agrees with the gated delta rule, written out token by token.

transformers pads the last chunk of 64 tokens, and there was doubt that the padding leaves the state
alone (https://github.com/huggingface/transformers/issues/46190). So prompts end within a chunk, at
its border and after it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.environment.overlay import lane_environment

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("recurrence_program.py")
CHUNK = 64
LENGTHS = (CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 17)
NATS = 1e-3
"""Half precision rounds to ten times this; fp32 and fp64 differ by a hundredth of it."""


@pytest.mark.parametrize("miniature", ["qwen3.5"])
def test_transformers_computes_the_gated_delta_rule(miniature: str) -> None:
    lane = lanes.load("cpu", Path())
    ready = environment.prepare(lane, cache=files.default_cache(), progress=print)
    assert ready.python
    prompts = {
        str(length): [(37 * at * at + 11 * at) % 1500 for at in range(length)] for length in LENGTHS
    }
    process = subprocess.run(
        [str(ready.python), str(PROGRAM)],
        input=json.dumps({"model": str(miniatures.path(miniature)), "prompts": prompts}),
        env=lane_environment(lane, ready.python, lane.overlay_path, {}),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    for length, (theirs, ours) in json.loads(process.stdout.splitlines()[-1]).items():
        furthest = max(abs(a - b) for a, b in zip(theirs, ours, strict=True))
        print(f"{length} tokens: at most {furthest:.2e} nats apart")
        assert 0 < furthest < NATS, length
