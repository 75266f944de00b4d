"""A prompt that is not the recorded one is written down token by token."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from pytest_vllm_gates.checkpoints import miniatures

if TYPE_CHECKING:
    import pytest

THINKS = "<think>\\n"


def test_the_changed_tokens_are_evidence(pytester: pytest.Pytester) -> None:
    folder = shutil.copytree(miniatures.path("qwen3.5"), pytester.path / "weights" / "miniature")
    template = folder / "chat_template.jinja"
    whole = template.read_text()
    assert THINKS in whole
    template.write_text(whole.replace(THINKS, THINKS + "\\n"))
    result = pytester.runpytest_inprocess(
        "--model", "qwen3.5", "--lane", "cpu", "--checkpoint", str(folder), "-m", "chat_template",
        "-k", "test_prompt_is_the_recorded and plain", "--gates-report", "out",
    )  # fmt: skip
    assert result.ret == 1
    written = json.loads((pytester.path / "out" / "verdict.json").read_text())
    (test,) = (
        test
        for gate in written["families"][0]["gates"]
        for test in gate["tests"]
        if test["test"] == "test_prompt_is_the_recorded[qwen3.5-plain]"
    )
    assert test["outcome"] == "FAIL"
    found = test["evidence"]["prompt"]
    assert found["of"] == ["recorded", "now"]
    changed = [(run["kind"], run["texts"]) for run in found["runs"] if run["kind"] != "same"]
    assert changed == [("removed", ["↵"]), ("added", ["↵↵"])]
