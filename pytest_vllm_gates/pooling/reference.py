"""Runs the program that computes vectors by transformers in fp32."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.pooling.types import Vector

PROGRAM = Path(__file__).with_name("fp32_program.py")
LIMIT_S = 300.0


def compute(
    checkpoint: Checkpoint,
    pooler: str,
    python: Path,
    overlay: Path | None,
    cases: Mapping[str, Sequence[int]],
    *,
    head: bool = False,
) -> dict[str, Vector]:
    """Return the vector of each case's token ids, in the lane's interpreter, not normalised.

    With `head` it is the probabilities of the model's labels.

    Raises `UserError` if transformers cannot run the checkpoint.
    """
    request = {"model": checkpoint.source, "pooler": pooler, "head": head, "cases": dict(cases)}
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if overlay:
        env["PYTHONPATH"] = str(overlay)
    try:
        process = subprocess.run(
            [str(python), str(PROGRAM)],
            input=json.dumps(request),
            env=env, capture_output=True, text=True, timeout=LIMIT_S, check=True,
        )  # fmt: skip
        vectors = json.loads(process.stdout.splitlines()[-1])["vectors"]
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()[-1:] or ["no message"]
        raise UserError(
            f"transformers cannot embed with {checkpoint.name} in fp32: {lines[0]}"
        ) from error
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError, KeyError) as error:
        raise UserError(f"the fp32 vectors of {checkpoint.name} failed: {error}") from error
    return {name: tuple(vector) for name, vector in vectors.items()}
