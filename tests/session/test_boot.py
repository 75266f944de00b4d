"""What a boot does while the server starts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import sys
from pathlib import Path
from pytest_vllm_gates import pytest_hooks
from pytest_vllm_gates.session import boot

clients = {"openai", "anthropic"}
before = clients & set(sys.modules)
server = boot.start_and_import(["sleep", "60"], env={}, log=Path(sys.argv[1]))
print(sorted(before), sorted(clients & set(sys.modules)), server.poll())
server.stop()
"""


def test_the_official_clients_are_imported_while_the_server_boots(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CODE, str(tmp_path / "log")]
    run = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.strip() == "[] ['anthropic', 'openai'] None"
