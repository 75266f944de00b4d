"""Every parser, architecture, encoder and flag of a shipped family is known to the lanes' vLLM."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, flags, lane as lanes
from pytest_vllm_gates.environment import build, bundle, environment, parsers
from pytest_vllm_gates.environment.overlay import lane_environment

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.environment.environment import Environment

NOWHERE = Path("/nowhere")
LANES = sorted(path.stem for path in lanes.SHIPPED.glob("*.toml"))
EVERY = tuple(families.load_all(NOWHERE))
LIMIT_S = 300.0
# Reads lines of arguments, and prints the result of vLLM's own parser for each.
PROGRAM = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

class Refused(Exception):
    pass

def refuse(message):
    raise Refused(message)

parser = make_arg_parser(FlexibleArgumentParser())
parser.error = refuse
for name, argv in json.load(sys.stdin).items():
    try:
        parser.parse_args(argv)
    except Refused as error:
        print(json.dumps([name, str(error)]))
print(json.dumps(["", "done"]))
"""


@pytest.fixture(scope="module", params=LANES)
def lane_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ready(lane_name: str) -> Environment:
    lane = lanes.load(lane_name, NOWHERE)
    cache = files.default_cache()
    on_cuda = lane.expects.cuda is not None
    if on_cuda and not shutil.which("nvidia-smi") and not build.existing_environment(lane, cache):
        pytest.skip(f"lane {lane_name} is for an NVIDIA GPU, which is not here, and is not made")
    return environment.prepare(lane, cache=cache, progress=print)


pytestmark = pytest.mark.real


def test_parsers_are_known(ready: Environment) -> None:
    missing = {
        one.name: wrong
        for one in EVERY
        if (wrong := parsers.unknown(ready.folders, one.serve)) is not None
    }
    assert not missing
    assert parsers.known_parsers(ready.folders, "reasoning_parser") >= {"qwen3", "glm45"}


def test_architectures_and_model_types_are_known(ready: Environment) -> None:
    brought = bundle.read(ready.folders, ready.versions)
    # vLLM makes a classifier of the model that writes text (`_normalize_arch` of its registry).
    asked = {
        one.name: {
            name.replace("ForSequenceClassification", "ForCausalLM") for name in one.architectures
        }
        for one in EVERY
    }
    missing = {
        name: sorted(architectures - brought.architectures) for name, architectures in asked.items()
    }
    assert not {name: unknown for name, unknown in missing.items() if unknown}
    types = {one.name: sorted(set(one.model_types) - brought.model_types) for one in EVERY}
    assert not {name: unknown for name, unknown in types.items() if unknown}


def test_encoders_are_there(ready: Environment) -> None:
    modules = {one.name: one.prompt.encoder for one in EVERY if one.prompt.encoder}
    assert "deepseek/v4.1" in modules
    missing = {
        name: module
        for name, module in modules.items()
        if not any(
            (folder / f"{module.replace('.', '/')}.py").is_file() for folder in ready.folders
        )
    }
    assert not missing


def test_flags_are_taken_by_the_lanes_own_command_line(ready: Environment, lane_name: str) -> None:
    lane = lanes.load(lane_name, NOWHERE)
    asked = {one.name: command_line(one, lane) for one in EVERY}
    # The refused ones show that arguments are checked.
    asked["control: flag"] = ["--model", "m", "--no-such-flag", "1"]
    asked["control: value"] = ["--model", "m", "--chat-template-content-format", "nonsense"]
    ran = subprocess.run(
        [str(ready.python), "-c", PROGRAM],
        input=json.dumps(asked),
        env=lane_environment(lane, ready.python, lane.overlay_path, {}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    said = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
    assert said[-1:] == [["", "done"]], ran.stderr[-2000:]
    refused = dict(said[:-1])
    assert refused.pop("control: flag")
    assert refused.pop("control: value")
    assert not refused


def command_line(family: Family, lane: lanes.Lane) -> list[str]:
    """Return vLLM's arguments for a family on a lane."""
    return ["--model", "m", *flags.command_line(flags.merged(family.serve, lane.serve))]
