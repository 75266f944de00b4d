"""A server that never comes up: it writes to its caches, or compiles nothing. `program.py WAY`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

folder = Path(os.environ["VLLM_CACHE_ROOT"])
(folder / "modelinfos").mkdir(parents=True)
(folder / "modelinfos" / "a.json").write_text("{}")
if sys.argv[1] == "ends":
    sys.exit(3)
if sys.argv[1] == "compiles":
    (folder / "graph").write_text("half of a gr")
time.sleep(600)
