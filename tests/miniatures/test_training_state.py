"""A training that was interrupted goes on from what it has kept, in the interpreter that builds."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.checkpoints.miniatures import HERE
from pytest_vllm_gates.miniatures.__main__ import lane_python

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

PROGRAM = """
import sys
from pathlib import Path
import torch
from pytest_vllm_gates.miniatures.training_state import TrainingState

def fresh(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)

def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(3)).square().sum().backward()
    optimizer.step()

state = TrainingState(Path(sys.argv[1]))
first, optimizer = fresh(0)
assert state.restore(first, optimizer) == 0
step(first, optimizer)
state.keep(first, optimizer, 1)
step(first, optimizer)

second, optimizer = fresh(1)
assert state.restore(second, optimizer) == 1
step(second, optimizer)
assert torch.equal(first.weight, second.weight)

assert TrainingState(None).restore(second, optimizer) == 0
TrainingState(None).keep(second, optimizer, 2)
"""


def test_the_next_step_is_the_one_that_was_interrupted(tmp_path: Path) -> None:
    python, overlay = lane_python()
    paths = os.pathsep.join(filter(None, (overlay, str(HERE.parent.parent))))
    env = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([python, "-c", PROGRAM, str(tmp_path / "state")], check=True, env=env)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
