"""What docs/adding.md shows is right: each of its files is read, and its gate judges a server."""

from __future__ import annotations

import datetime
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import family as families, known_defects, lane as lanes, waivers
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.client.answer import Answer, ToolCall
from pytest_vllm_gates.conversations.checks import tokens
from pytest_vllm_gates.diagnosis import signature
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fixtures import checking, common as fixtures, prompts
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from conftest import Project

TEXT = (Path(__file__).parent.parent / "docs" / "adding.md").read_text(encoding="utf-8")
DAY = datetime.date(2026, 11, 22)
CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
CALL = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Oslo"}}\n</tool_call>'


def section(name: str) -> str:
    return TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def block(name: str, language: str) -> str:
    """Return the one block of a section in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section(name), re.MULTILINE | re.DOTALL)
    return str(found)


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A checkpoint's folder in a project, as far as its family is told by it."""
    return put(tmp_path, "acme-1/config.json", json.dumps(CONFIG)).parent


def test_a_checkpoint_of_no_family_is_refused_in_the_words_of_the_page(
    weights: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        checkpoints_resolve.family_of(str(weights), tmp_path)
    assert str(refused.value).replace(str(weights), "./acme-1") in TEXT


def test_the_family_is_found_from_a_local_checkpoint(weights: Path, tmp_path: Path) -> None:
    put(tmp_path, "families/acme.toml", block("A family", "toml"))
    family, why = checkpoints_resolve.family_of(str(weights), tmp_path)
    assert (family.name, why) == ("acme", " (found by its folder)")
    assert families.load("acme/1", tmp_path) == family
    assert checkpoints_resolve.resolve(family, str(weights)).name == "acme-1"
    raw = f"{CALL}<|im_end|>"
    whole = Answer("", "", (ToolCall("get_time", '{"city": "Oslo"}'),), "tool_calls", None)
    assert list(tokens.lost(whole, raw, family, thinks=False)) == []
    none = Answer("", "", (), "stop", None)
    assert list(tokens.lost(none, raw, family, thinks=False))


def test_the_lane_is_one(tmp_path: Path) -> None:
    put(tmp_path, "lanes/canary.toml", block("A lane", "toml"))
    assert lanes.load("canary", tmp_path).form == "python"


def test_the_signature_is_one(tmp_path: Path) -> None:
    put(tmp_path, "signatures/ours.toml", block("A signature", "toml"))
    found = {entry.id for group in signature.load_all(tmp_path) for entry in group.signatures}
    assert "PROXY_DOWN" in found


def test_the_waiver_is_one_of_a_test_that_exists(tmp_path: Path) -> None:
    put(tmp_path, waivers.NAME, block("A waiver", "toml"))
    (waiver,) = waivers.load_all(tmp_path, verdict_gates.gate_files(), DAY)
    text = verdict_gates.gate_files()[waiver.gate].read_text(encoding="utf-8")
    assert f"def {waiver.test}(" in text


def test_the_known_defect_is_one_that_ships(tmp_path: Path) -> None:
    put(tmp_path, known_defects.NAME, block("A known defect", "toml"))
    *shipped, own = known_defects.load_all(tmp_path)
    assert own in shipped


def test_every_fixture_of_the_page_exists() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", section("A gate"), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert "chat" in names
    for name in names:
        assert any(hasattr(module, name) for module in (fixtures, checking, prompts)), name


def test_the_gate_judges_the_familys_local_checkpoint(project: Project) -> None:
    miniature = checkpoints_resolve.miniature(families.load("qwen3.5", project.path))
    assert miniature
    folder = shutil.copytree(miniature.source, project.path / "acme-1")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | CONFIG), encoding="utf-8")
    project.write("families/acme.toml", block("A family", "toml"))
    project.write("my_gates/test_capitals.py", block("A gate", "python"))

    def outcomes(faults: str = "") -> dict[str, str]:
        project.lane(faults)
        project.pytest(
            "--model", "./acme-1", "--lane", "fake", "--gates-report", "out", "my_gates/",
            "-k", "test_capitals",
        )  # fmt: skip
        (family,) = project.verdict()["families"]
        assert (family["name"], family["checkpoint"]["name"]) == ("acme", "acme-1")
        tests = [test for gate in family["gates"] for test in gate["tests"]]
        return {test["test"].partition("[")[0]: test["outcome"] for test in tests}

    names = ("test_names_the_capital", "test_streams_the_same_answer")
    assert outcomes() == dict.fromkeys(names, "PASS")
    assert outcomes("bangs")["test_names_the_capital"] == "FAIL"
