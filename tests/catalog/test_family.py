"""Families, their members, and finding them from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.errors import UserError

NOWHERE = Path("/nowhere")
SMALL = """
title = "T"
line = "main"
architectures = ["A"]
model_types = ["a"]
prompt = { user = "U", assistant = "A", stop_tokens = ["S"] }
context = { native = 8, planned = 4 }
checkpoints = [{ name = "one", hub = "org/one" }]

[serve]
reasoning_parser = "r"
max_model_len = 4

[members.other]
title = "O"

[members.other.serve]
reasoning_parser = "none"
"""


def test_every_shipped_family_and_member_loads() -> None:
    names = [family.name for family in families.load_all(NOWHERE)]
    assert {"qwen3.5", "glm", "deepseek", "gemma"} <= set(names)
    assert {"qwen3.5/moe", "glm/flash", "deepseek/r1", "gemma/3"} <= set(names)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("GLM", "glm"), ("glm/4.7", "glm"), ("Glm/Flash", "glm/flash"),
        ("qwen-3.5", "qwen3.5"), ("deepseek/R1", "deepseek/r1"), ("gemma/4", "gemma"),
    ],
)  # fmt: skip
def test_names_are_found_as_people_spell_them(spelling: str, name: str) -> None:
    assert families.load(spelling, NOWHERE).name == name


def test_unknown_member_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown member 'glm/flsh'; did you mean 'glm/flash'"):
        families.load("glm/flsh", NOWHERE)


def test_member_states_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    (tmp_path / "families" / "small.toml").write_text(SMALL)
    member = families.load("small/other", tmp_path)
    assert (member.title, member.serve) == ("O", {"max_model_len": 4})
    assert families.load("small", tmp_path).serve["reasoning_parser"] == "r"


def test_a_typo_in_a_member_is_found_on_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    path = tmp_path / "families" / "small.toml"
    path.write_text(SMALL + "\n[members.other.prompt]\nusr = 'x'\n")
    line = 1 + path.read_text().splitlines().index("usr = 'x'")
    with pytest.raises(UserError, match=rf"small.toml:{line}: unknown key 'prompt.usr'.*'user'"):
        families.load("small", tmp_path)


@pytest.mark.parametrize("member", ["main", "Main"])
def test_a_member_cannot_have_the_name_of_the_main_lines_folder(
    tmp_path: Path, member: str
) -> None:
    (tmp_path / "families").mkdir()
    path = tmp_path / "families" / "small.toml"
    path.write_text(f"{SMALL}\n[members.{member}]\ntitle = 'M'\n")
    line = 1 + path.read_text().splitlines().index(f"[members.{member}]")
    with pytest.raises(UserError) as raised:
        families.load("small", tmp_path)
    assert str(raised.value).splitlines() == [
        f"{path}:{line}: a member cannot be called {member!r}: golden/small/main/ contains the "
        "main line's goldens",
        f"rename [members.{member}]; if golden/small/{member}/ contains its goldens, rename "
        "that folder, too",
    ]


def test_a_main_line_may_be_called_main(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    (tmp_path / "families" / "small.toml").write_text(SMALL)
    assert families.load("small/main", tmp_path).name == "small"


@pytest.mark.parametrize("name", ["incidents", "baselines", "Baselines"])
def test_family_cannot_be_named_like_a_golden_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "families").mkdir()
    path = tmp_path / "families" / f"{name}.toml"
    path.write_text(SMALL)
    with pytest.raises(UserError) as raised:
        families.load(name, tmp_path)
    assert str(raised.value).splitlines() == [
        f"{path}: a family cannot be called {name!r}: golden/{name}/ has the project's "
        f"{name.lower()}",
        "rename the file",
    ]


@pytest.mark.parametrize(
    ("architecture", "source", "name"),
    [
        ("Glm4MoeForCausalLM", "zai-org/GLM-4.7", "glm"),
        ("Glm4MoeForCausalLM", "/models/GLM-4.5-Air", "glm/4.5"),
        ("Glm4MoeLiteForCausalLM", "x", "glm/flash"),
        ("DeepseekV3ForCausalLM", "deepseek-ai/DeepSeek-R1-0528", "deepseek/r1-0528"),
        ("DeepseekV3ForCausalLM", "deepseek-ai/DeepSeek-R1", "deepseek/r1"),
        ("Qwen3_5MoeForConditionalGeneration", "Qwen/Qwen3.6-35B-A3B", "qwen3.5/3.6"),
        ("Qwen3_5MoeForCausalLM", "Qwen/Qwen3.8-2.4T-A95B-FP8", "qwen3.5/3.8"),
        ("Qwen4ExpForConditionalGeneration", "weights", "qwen3.5/qwen4-preview"),
        ("GlmMoeDsaForCausalLM", "zai-org/GLM-5.1", "glm/5"),
        ("GlmMoeDsaForCausalLM", "Inferact/GLM-5.3-NVFP4", "glm/5.3"),
        ("DeepseekV41ForCausalLM", "weights", "deepseek/v4.1"),
        ("Gemma4UnifiedForConditionalGeneration", "weights", "gemma/12b"),
        ("DeepseekV3ForCausalLM", "deepseek-ai/DeepSeek-V3.1", "deepseek"),
        ("Qwen3_5ForConditionalGeneration", "Qwen/Qwen3.5-0.8B", "qwen3.5/small"),
        ("Gemma3ForCausalLM", "gemma-3-270m-it", "gemma/3"),
        ("LlamaForCausalLM", "meta/Llama", None),
        ("LlamaForCausalLM", "meta-llama/Llama-3.1-8B-Instruct", "llama"),
        ("LlamaForCausalLM", "meta-llama/Meta-Llama-3-8B-Instruct", "llama/3"),
        ("LlamaForCausalLM", "NousResearch/Hermes-3-Llama-3.1-8B", None),
        ("LlamaForCausalLM", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "deepseek/r1"),
        ("Llama4ForConditionalGeneration", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama/4"),
        ("MistralForCausalLM", "HuggingFaceH4/zephyr-7b-beta", None),
        ("Mistral3ForConditionalGeneration", "mistralai/Ministral-3-8B-Instruct-2512", "mistral"),
        ("Phi3ForCausalLM", "microsoft/Phi-4-mini-instruct", "phi"),
        ("Phi3ForCausalLM", "microsoft/phi-4", None),
        ("Phi3ForCausalLM", "microsoft/Phi-3.5-mini-instruct", "phi/3.5"),
        ("MiniMaxM2ForCausalLM", "MiniMaxAI/MiniMax-M2.5", "minimax"),
        ("NemotronHForCausalLM", "nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", "nemotron"),
    ],
)
def test_family_is_recognised_from_a_checkpoint(
    architecture: str, source: str, name: str | None
) -> None:
    family = families.recognise((architecture,), "", source, NOWHERE)
    assert (family and family.name) == name


@pytest.mark.parametrize(
    ("model_type", "source", "name"),
    [
        ("deepseek_v3", "deepseek-ai/DeepSeek-V3.1", "deepseek"),
        ("kimi_k2", "moonshotai/Kimi-K2-Thinking", "kimi"),
        ("kimi_k2", "/models/tuned", "kimi"),
        ("kimi_k2", "moonshotai/Kimi-K2-Instruct-0905", "kimi/instruct"),
        ("deepseek_v3", "/models/tuned", "deepseek"),
    ],
)
def test_model_type_separates_families_of_one_architecture(
    model_type: str, source: str, name: str
) -> None:
    family = families.recognise(("DeepseekV3ForCausalLM",), model_type, source, NOWHERE)
    assert family is not None
    assert family.name == name


@pytest.mark.parametrize("name", ["qwen3.8", "Qwen-3.8", "qwen3.5/3.8"])
def test_alias_names_a_member(name: str) -> None:
    assert families.load(name, Path("/nonexistent")).name == "qwen3.5/3.8"


def test_a_family_of_the_project_comes_before_an_alias(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    text = (families.SHIPPED / "gemma.toml").read_text()
    (tmp_path / "families" / "qwen3.8.toml").write_text(text)
    assert families.load("qwen3.8", tmp_path).name == "qwen3.8"


def listing(tmp_path: Path, *entries: str) -> None:
    """Write a family with a member that lists these checkpoints, besides its name patterns."""
    (tmp_path / "families").mkdir()
    member = "\n[members.odd]\ntitle = 'Odd'\nrecognise = ['*never*']\n"
    listed = "".join(f"\n[[members.odd.checkpoints]]\n{entry}\n" for entry in entries)
    (tmp_path / "families" / "small.toml").write_text(SMALL + member + listed)


@pytest.mark.parametrize("source", ["org/Tuned-7", "ORG/tuned-7", "/models/Tuned-7", "./Tuned-7/"])
def test_a_listed_name_counts_though_no_pattern_matches_it(tmp_path: Path, source: str) -> None:
    listing(tmp_path, "name = 'tuned'\nhub = 'org/Tuned-7'")
    found = families.recognise(("A",), "", source, tmp_path)
    assert found is not None and found.name == "small/odd"
    other = families.recognise(("A",), "", "org/Tuned-8", tmp_path)
    assert other is not None and other.name == "small"


def test_a_listed_name_of_another_architecture_is_not_recognised(tmp_path: Path) -> None:
    listing(tmp_path, "name = 'tuned'\nhub = 'org/Tuned-7'")
    assert families.recognise(("B",), "", "org/Tuned-7", tmp_path) is None


def test_a_listed_folder_counts_though_no_pattern_matches_it(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    listing(tmp_path, "name = 'house'\nfolder = '../weights'")
    found = families.recognise(("A",), "", str(tmp_path / "weights"), tmp_path)
    assert found is not None and found.name == "small/odd"


def test_native_context_is_the_checkpoints_own() -> None:
    glm = families.load("glm/4.5", NOWHERE)
    assert glm.native_context("zai-org/GLM-4.5-Air") == 131072
    assert glm.native_context("ZAI-org/glm-4.6") == 202752
    assert glm.native_context("acme/GLM-4.6") is None
    assert families.load("glm/5.2", NOWHERE).native_context("zai-org/GLM-5.2") == 1048576


def test_planned_context_is_at_most_the_native_one(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    text = SMALL.replace("planned = 4", "planned = 9")
    (tmp_path / "families" / "small.toml").write_text(text)
    with pytest.raises(UserError, match=r"planned \(9\) is more than the model was made for \(8\)"):
        families.load("small", tmp_path)


@pytest.mark.parametrize("one", [*families.load_all(NOWHERE)], ids=lambda one: one.name)
def test_a_shipped_member_has_its_sources_with_a_date(one: families.Family) -> None:
    assert one.sources
    assert all(source.looked_up.year >= 2026 for source in one.sources)
    assert one.prescribed_template is None or one.prescribed_template.reference


def test_a_member_is_not_taken_for_an_alias_that_is_spelled_alike() -> None:
    assert families.load("llama/3", NOWHERE).name == "llama/3"
    assert families.load("llama3", NOWHERE).name == "llama"
    assert families.load("qwen3.8", NOWHERE).name == "qwen3.5/3.8"


def test_a_family_without_a_switch_always_thinks() -> None:
    names = sorted(path.stem for path in families.SHIPPED.glob("*.toml"))
    always = {name for name in names if families.load(name, NOWHERE).thinks_always}
    assert always == {"gpt-oss", "kimi", "minimax"}
