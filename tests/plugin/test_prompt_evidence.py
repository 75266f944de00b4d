"""A prompt that differs from the recorded one is written down token by token."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from pytest_vllm_gates.checkpoints import miniatures

if TYPE_CHECKING:
    import pytest

THINKS = "<think>\\n"


def test_changed_tokens_are_evidence(pytester: pytest.Pytester) -> None:
    folder = shutil.copytree(miniatures.path("qwen3.5"), pytester.path / "weights" / "miniature")
    template = folder / "chat_template.jinja"
    template_text = template.read_text()
    assert THINKS in template_text
    template.write_text(template_text.replace(THINKS, THINKS + "\\n"))
    result = pytester.runpytest_inprocess(
        "--model", "qwen3.5", "--lane", "cpu", "--checkpoint", str(folder), "-m", "chat_template",
        "-k", "test_prompt_is_the_recorded and plain", "--gates-report", "out",
    )  # fmt: skip
    assert result.ret == 1
    verdict = json.loads((pytester.path / "out" / "verdict.json").read_text())
    (test,) = (
        test
        for gate in verdict["families"][0]["gates"]
        for test in gate["tests"]
        if test["test"] == "test_prompt_is_the_recorded[qwen3.5-plain]"
    )
    assert test["outcome"] == "FAIL"
    prompt = test["evidence"]["prompt"]
    assert prompt["of"] == ["recorded", "now"]
    changed = [(run["kind"], run["texts"]) for run in prompt["runs"] if run["kind"] != "same"]
    assert changed == [("removed", ["↵"]), ("added", ["↵↵"])]
