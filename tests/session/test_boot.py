"""What a boot does while the server starts."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING

from pytest_vllm_gates.session import boot

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from conftest import Project

CODE = """
import gc
import sys
from pathlib import Path
from pytest_vllm_gates import pytest_hooks
from pytest_vllm_gates.session import boot

clients = {"openai", "anthropic"}
before = clients & set(sys.modules)
server = boot.start_and_import(["sleep", "60"], env={}, log=Path(sys.argv[1]))
print(sorted(before), sorted(clients & set(sys.modules)), server.poll())
print(gc.get_freeze_count() > 100_000)
server.stop()
"""


def test_the_official_clients_are_imported_while_the_server_boots(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CODE, str(tmp_path / "log")]
    run = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    imported, frozen = run.stdout.splitlines()
    assert imported == "[] ['anthropic', 'openai'] None"
    assert frozen == "True"  # no collection of garbage visits the clients' objects


def test_the_collector_of_garbage_is_as_before_after_a_run(project: Project) -> None:
    before = gc.get_freeze_count()
    project.gates("-m", "boot")
    assert gc.get_freeze_count() == before == 0


def test_what_the_gates_need_is_imported_by_a_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("needed_later.py", "import pathlib\npathlib.Path(__file__ + '.done').touch()\n")
    monkeypatch.syspath_prepend(project.path)
    monkeypatch.setattr(boot, "NEEDED_LATER", ("needed_later",))
    project.gates("-m", "boot")
    assert (project.path / "needed_later.py.done").exists()
