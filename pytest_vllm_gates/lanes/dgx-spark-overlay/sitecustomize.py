"""Arms the repair beside it in every Python process that has this folder on its path.

A repair named in $VLLM_GATES_WITHOUT_REPAIRS is left out. An environment's own
`sitecustomize`, which this one hides, is run afterwards.
"""

# ruff: noqa: INP001, PLC0415, PTH120 - on the path of every process: no more imports than needed

import os
import os.path
import sys
from importlib.machinery import PathFinder

from gb10_repairs import fp8_fallback

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
if "fp8_fallback" not in left_out:
    fp8_fallback.arm()
run_hidden()
