"""A real server whose KV connector loads the wrong thing turns the features gate red."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e import gates, own_lane

pytestmark = [pytest.mark.real, pytest.mark.slow]

CONNECTORS = Path(__file__).parent / "connectors"
MODEL = "llama"
ANSWERS = "answers_as_without_them"


@pytest.mark.parametrize("name", ["Silent", "Shifted"])
def test_connector_that_loads_the_wrong_thing_is_red(name: str, tmp_path: Path) -> None:
    config = {
        "kv_connector": name,
        "kv_connector_module_path": "wrong_connectors",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "stored")},
    }
    serve = {"enable_prefix_caching": False, "kv_transfer_config": config}
    own_lane.write(tmp_path, "wrong", env={"PYTHONPATH": str(CONNECTORS)}, serve=serve)
    run = gates.run(
        tmp_path, "--lane", "wrong", "-m", "boot or features", "--features", "deployed", model=MODEL
    )
    (family,) = run.verdict["families"]
    failed = [
        test["test"].partition("[")[0].removeprefix("test_")
        for gate in family["gates"]
        for test in gate["tests"]
        if test["outcome"] == "FAIL"
    ]
    assert failed == [ANSWERS], run.output
