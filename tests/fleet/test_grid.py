"""The page: reasons first, then families by lanes with a link to each report."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from fleet.made_fleets import leave, leave_all, plan_of, served, verdict
from pytest_vllm_gates.fleet import grid, html, merged, reports

if TYPE_CHECKING:
    from pathlib import Path


def test_page_shows_each_shard_in_its_place(tmp_path: Path) -> None:
    plan = plan_of(served("glm"), served("kimi"), served("glm", "canary"))
    leave_all(tmp_path / "shards", plan)
    shard = plan.shard("kimi-cpu")
    leave(tmp_path / "shards" / shard.name, plan, shard, verdict(shard, {"tools": "FAIL"}))
    shutil.rmtree(tmp_path / "shards" / "glm-canary")
    fleet = merged.merge(plan, reports.read([tmp_path / "shards"]))
    page = grid.page(plan, fleet, "vllm-gates shard fleet.json glm-canary", tmp_path / "out")
    assert page.startswith("# REJECT: 3 shards\n\n- kimi on cpu: tools is FAIL")
    assert "    vllm-gates shard fleet.json glm-canary\n" in page
    assert page.endswith(
        "| family | cpu | canary |\n"
        "| --- | --- | --- |\n"
        "| glm | [PASS](../shards/glm-cpu/report.html) | no verdict (glm-canary) |\n"
        "| kimi | [FAIL: tools](../shards/kimi-cpu/report.html) | not planned |\n"
    )


def test_html_links_each_shard_and_trusts_no_text(tmp_path: Path) -> None:
    plan = plan_of(served("glm"), served("kimi"), served("glm", "canary"))
    leave_all(tmp_path / "shards", plan)
    shard = plan.shard("kimi-cpu")
    document = verdict(shard, {"tools": "FAIL"})
    document["families"][0]["gates"][2]["tests"][0]["reason"] = "<script>alert(1)</script>"
    leave(tmp_path / "shards" / shard.name, plan, shard, document)
    shutil.rmtree(tmp_path / "shards" / "glm-canary")
    fleet = merged.merge(plan, reports.read([tmp_path / "shards"]))
    page = html.page(plan, fleet, "vllm-gates shard fleet.json glm-canary", tmp_path / "out")
    assert "<title>REJECT: 3 shards</title>" in page
    assert '<a href="../shards/kimi-cpu/report.html" title="kimi-cpu">' in page
    assert '<span class="outcome fail">FAIL: tools</span>' in page
    assert '<span class="outcome hold">no verdict (glm-canary)</span>' in page
    assert '<span class="note">not planned</span>' in page
    assert "<code>vllm-gates shard fleet.json glm-canary</code>" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
