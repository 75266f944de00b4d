"""Starts a lane's server with undeclared flags and an undeclared checkpoint.

Stands in `[start] server` of a lane in place of `-m MODULE`. `FAULT_FLAGS` has the flags,
`FAULT_CHECKPOINT` the folder that is served in place of `FAULT_INSTEAD_OF`.
"""

import os
import runpy
import shlex
import sys

MODULE = "vllm.entrypoints.launchers.api_server.entry"

if __name__ == "__main__":
    asked, served = os.environ.get("FAULT_INSTEAD_OF"), os.environ.get("FAULT_CHECKPOINT", "")
    sys.argv[1:] = [served if argument == asked else argument for argument in sys.argv[1:]]
    sys.argv += shlex.split(os.environ.get("FAULT_FLAGS", ""))
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
