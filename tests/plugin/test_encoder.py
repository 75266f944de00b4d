"""A family without a template is not judged without its lane's interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.checkpoints import miniatures

if TYPE_CHECKING:
    from conftest import Project, Result

GATE = '''\
"""The renderer of prompts can be used."""


def test_it_renders(reference, server):
    assert reference
'''


def rendered(project: Project) -> Result:
    project.write("my_gates/test_rendered.py", GATE)
    weights = f"--checkpoint={miniatures.path('deepseek-v3.1')}"
    return project.pytest(
        "--model=deepseek/v3.2",
        weights,
        "--lane=fake",
        "--gates-report=out",
        "-k=renders",
        "my_gates",
    )


def test_without_the_lanes_interpreter_is_inconclusive(project: Project) -> None:
    project.lane()
    result = rendered(project)
    assert result.ret == 0
    (family,) = project.verdict()["families"]
    gates = {gate["gate"]: gate for gate in family["gates"]}
    assert gates["rendered"]["outcome"] == "INCONCLUSIVE"
    assert project.verdict()["promotion"] == "HOLD"
    reason = gates["rendered"]["tests"][0]["reason"]
    assert reason == (
        "deepseek/v3.2 has no template: vllm.tokenizers.deepseek_v32_encoding of the lane's vLLM "
        "writes its prompts, and this lane's interpreter is not available; name a lane with a lock "
        "or a python (--lane)"
    )


def test_without_a_server_is_blocked(project: Project) -> None:
    project.lane("dies")
    rendered(project)
    assert project.outcomes()["rendered::test_it_renders[deepseek/v3.2]"] == "BLOCKED"
