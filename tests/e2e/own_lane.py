"""A lane of a project: the shipped CPU lane with some keys changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from e2e.served import LANE, ROOT
from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes, of_release, outside
from pytest_vllm_gates.environment import environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.environment.environment import Environment

# Keys for making an environment, which a lane that names an interpreter does not have.
MAKING = ("lock", *lanes.MAKING, *lanes.RELEASE)


def write(folder: Path, name: str, **tables: Mapping[str, Any] | str) -> Environment:
    """Write `lanes/<name>.toml` into a project's folder, with other keys in `env`, `serve`, …

    A text is the key's own value; None takes a key of a table away. Returns the environment it
    serves from, which is the shipped lane's.
    """
    shipped = lanes.load(LANE, ROOT)
    ready = environment.prepare(shipped, cache=files.default_cache(), progress=print)
    file = lanes.SHIPPED / f"{LANE}.toml"
    whole = of_release.completed(file, outside.read(file)[1])
    lane_table = {key: value for key, value in whole.items() if key not in MAKING}
    lane_table |= {"title": f"the CPU lane as {name}", "python": str(ready.python)}
    for table, values in tables.items():
        if isinstance(values, str):
            lane_table[table] = values
            continue
        merged = lane_table.get(table, {}) | values
        lane_table[table] = {key: value for key, value in merged.items() if value is not None}
    (folder / "lanes").mkdir(exist_ok=True)
    (folder / "lanes" / f"{name}.toml").write_text(_toml(lane_table), encoding="utf-8")
    return ready


def _toml(document: Mapping[str, Any], table: str = "") -> str:
    plain = {key: value for key, value in document.items() if not isinstance(value, dict)}
    lines = [f"[{table}]"] if table and plain else []
    lines += [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    below = [
        _toml(value, f"{table}.{key}".lstrip("."))
        for key, value in document.items()
        if isinstance(value, dict)
    ]
    return "\n".join([*lines, "", *below])
