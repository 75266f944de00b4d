"""What a boot does while the server starts."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from pytest_vllm_gates import pytest_hooks
from pytest_vllm_gates.session import boot

clients = {"openai", "anthropic"}
before = clients & set(sys.modules)
boot._import_meanwhile()
print(sorted(before), sorted(clients & set(sys.modules)))
"""


def test_the_official_clients_are_imported_while_the_server_boots_and_not_before() -> None:
    argv = [sys.executable, "-c", CODE]
    run = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.strip() == "[] ['anthropic', 'openai']"
