"""Source is parsed by one thread at a time, and by many in the end."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_vllm_gates.environment import python_source


def test_threads_parse_the_same() -> None:
    line = "def f{0}(a, *, b=[{{'c': (1, -{0})}}]): return lambda: a + b"
    source = "\n".join(line.format(number) for number in range(300))
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(python_source.parse, [source] * 24))
    assert {len(tree.body) for tree in trees} == {300}
    assert ast.dump(trees[0]) == ast.dump(trees[-1])


def test_invalid_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        python_source.parse("def (")
