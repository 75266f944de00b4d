"""Starts a lane's server; on caches that another boot has used it serves another checkpoint.

Stands in `[start] server` of a lane in place of `-m MODULE`. `FAULT_CHECKPOINT` is the folder that
is then served in place of `FAULT_INSTEAD_OF`: a warm cache of another model.
"""

import os
import runpy
import sys
from pathlib import Path

MODULE = "vllm.entrypoints.launchers.api_server.entry"
USED = "used"

if __name__ == "__main__":
    caches = os.environ.get("VLLM_CACHE_ROOT")
    if caches and Path(caches, USED).exists():
        asked, served = os.environ["FAULT_INSTEAD_OF"], os.environ["FAULT_CHECKPOINT"]
        sys.argv[1:] = [served if argument == asked else argument for argument in sys.argv[1:]]
    elif caches:
        Path(caches).mkdir(parents=True, exist_ok=True)
        Path(caches, USED).write_text("x", encoding="utf-8")
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
