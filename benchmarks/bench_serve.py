"""Runs `vllm bench serve` from a lane's environment."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overhead import LANE, MODEL  # type: ignore[import-not-found, unused-ignore]

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.environment import environment as environment_environment

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint

LIMIT_S = 300.0
# The lane's vLLM has another distribution's name, which its command line does not find.
PEER = """\
import argparse
from vllm.benchmarks import serve
parser = argparse.ArgumentParser()
serve.add_cli_args(parser)
def run(flags):
    serve.main(parser.parse_args(flags))
"""
ONCE = "import sys\nrun(sys.argv[1:])\n"


@dataclass(frozen=True)
class BenchServe:
    """Its environment, and a tokenizer for it."""

    python: Path
    overlay: Path
    tokenizer: str

    def flags(
        self,
        endpoint: Endpoint,
        *,
        requests: int,
        users: int,
        prompt_tokens: int,
        output_tokens: int,
    ) -> list[str]:
        """Return the flags for a number of random requests, with their concurrency."""
        arguments = {
            "backend": "openai",
            "base-url": endpoint.root_url,
            "endpoint": "/v1/completions",
            "model": endpoint.model,
            "tokenizer": self.tokenizer,
            "dataset-name": "random",
            "random-input-len": prompt_tokens,
            "random-output-len": output_tokens,
            "num-prompts": requests,
            "max-concurrency": users,
            "temperature": 0,
        }
        options = [f"--{name}={value}" for name, value in arguments.items()]
        return [*options, "--ignore-eos", "--disable-tqdm"]

    def environment(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the environment variables it needs."""
        key = {"OPENAI_API_KEY": endpoint.api_key or ""}
        return os.environ | key | {"PYTHONPATH": str(self.overlay)}

    def run(self, endpoint: Endpoint, flags: list[str], folder: Path) -> dict[str, Any]:
        """Run it and return its saved result; raises SystemExit with its last lines."""
        result_options = ["--save-result", f"--result-dir={folder}", "--result-filename=peer.json"]
        process = subprocess.run(
            [str(self.python), "-c", PEER + ONCE, *flags, *result_options],
            env=self.environment(endpoint), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
        if process.returncode:
            raise SystemExit(process.stdout[-2000:] + process.stderr[-2000:])
        result: dict[str, Any] = json.loads((folder / "peer.json").read_text(encoding="utf-8"))
        return result


def of_lane() -> BenchServe:
    """Return that of the CPU lane, with a miniature's tokenizer; makes the lane if necessary."""
    lane = lanes.load(LANE, Path())
    ready = environment_environment.prepare(lane, cache=files.default_cache(), progress=print)
    assert ready.python  # noqa: S101 - this lane has a lock
    assert lane.overlay_path  # noqa: S101 - and repairs
    tokenizer = checkpoints_resolve.resolve(families.load(MODEL, Path()), lane.checkpoint).source
    return BenchServe(ready.python, lane.overlay_path, tokenizer)
