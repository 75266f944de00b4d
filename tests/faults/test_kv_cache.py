"""A real server with wrong contents in its KV cache turns the features gate red."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e import gates, own_lane

pytestmark = [pytest.mark.real, pytest.mark.slow]

CODE = Path(__file__).parent / "kv_cache"
MODEL = "llama"
ANSWERS = "answers_as_without_them"


def failed(folder: Path, serve: dict[str, Any], features: str) -> list[str]:
    """Return the tests of the gate that fail with a lane that has these flags."""
    own_lane.write(folder, "wrong", env={"PYTHONPATH": str(CODE)}, serve=serve)
    run = gates.run(
        folder, "--lane", "wrong", "-m", "boot or features", "--features", features, model=MODEL
    )
    (family,) = run.verdict["families"]
    return [
        test["test"].partition("[")[0].removeprefix("test_")
        for gate in family["gates"]
        for test in gate["tests"]
        if test["outcome"] == "FAIL"
    ]


@pytest.mark.parametrize("name", ["Silent", "Shifted"])
def test_connector_that_loads_the_wrong_thing_is_red(name: str, tmp_path: Path) -> None:
    config = {
        "kv_connector": name,
        "kv_connector_module_path": "wrong_connectors",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "stored")},
    }
    serve = {"enable_prefix_caching": False, "kv_transfer_config": config}
    assert failed(tmp_path, serve, "deployed") == [ANSWERS]


def test_evicted_block_that_is_still_found_is_red(tmp_path: Path) -> None:
    serve = {"scheduler_cls": "keeping_scheduler.Keeping", "async_scheduling": False}
    assert failed(tmp_path, serve, "small-cache") == [ANSWERS]
