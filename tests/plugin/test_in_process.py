"""Runs of pytest in one process do not mix the modules of one with those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_vllm_gates.throughput  # noqa: F401 - a package that every run finds

if TYPE_CHECKING:
    from conftest import Project

FIRST = """
from pytest_vllm_gates.throughput import decide

def test_imports(): ...
"""
SECOND = """
from pytest_vllm_gates.throughput import decide
from pytest_vllm_gates.throughput.running import Conclusion

def test_has_one_class(): assert Conclusion is decide.Conclusion
"""


def test_second_run_has_one_module_of_each_name(project: Project) -> None:
    """A gate failed, and its message claimed that nothing is wrong."""
    project.write("test_first.py", FIRST)
    project.write("test_second.py", SECOND)
    assert project.pytest("test_first.py").ret == 0
    assert project.pytest("test_second.py").ret == 0
