"""Arms the repairs beside it in every Python process that has this folder on its path.

Repairs named in $VLLM_GATES_WITHOUT_REPAIRS, with commas, are left out. An environment's own
`sitecustomize`, which this one hides, is run afterwards.
"""

# ruff: noqa: INP001, PLC0415, PTH120 - on the path of every process: no more imports than needed

import os
import os.path
import sys
from importlib.machinery import PathFinder

from vllm_gates_repairs import (
    base_beside_adapters,
    one_process,
    one_token_prompts,
    rotary_embedding,
    router_dtype,
    seeded_prompts,
    sigmoid_routing,
    slow_bfloat16,
    torchvision_operators,
)

HERE = os.path.realpath(os.path.dirname(__file__))


def run_hidden() -> None:
    """Run the `sitecustomize` that comes after this folder on the path, if there is one."""
    others = [entry for entry in sys.path if os.path.realpath(entry or ".") != HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


left_out = os.environ.get("VLLM_GATES_WITHOUT_REPAIRS", "").split(",")
for repair in (
    torchvision_operators,
    rotary_embedding,
    one_process,
    one_token_prompts,
    router_dtype,
    seeded_prompts,
    sigmoid_routing,
    base_beside_adapters,
    slow_bfloat16,
):
    if repair.__name__.rpartition(".")[2] not in left_out:
        repair.arm()
run_hidden()
