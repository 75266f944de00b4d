"""The run's options choose the combinations; an unknown name ends it at once."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from e2e import gates, own_lane

from pytest_vllm_gates.catalog import family as families, known_defects, lane as lanes
from pytest_vllm_gates.features import catalog
from pytest_vllm_gates.fixtures import features as feature_fixtures
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable
from pytest_vllm_gates.session import resolve
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Sequence

NOWHERE = Path("/nonexistent")


def test_unknown_feature_is_named_before_a_boot(pytester: pytest.Pytester) -> None:
    ran = pytester.runpytest_subprocess("--model", "qwen3.5", "--features", "ngrm")
    ran.stderr.fnmatch_lines(["*unknown feature 'ngrm'; did you mean 'ngram'?*"])
    assert ran.ret == 4


def test_invalid_adapter_of_the_lane_is_named_before_a_boot(
    pytester: pytest.Pytester,
) -> None:
    lane = 'title = "mine"\npython = "python"\n[lora_modules]\nsql = "missing"\n'
    folder = pytester.mkdir("lanes")
    (folder / "mine.toml").write_text(lane)
    arguments = ("--rootdir=.", "--model", "qwen3.5", "--checkpoint", "miniature", "--lane", "mine")
    ran = pytester.runpytest_subprocess(*arguments, "--features", "lora")
    ran.stderr.fnmatch_lines(["*adapter sql: */lanes/missing/adapter_config.json does not exist*"])
    assert ran.ret == 4


def test_combinations_are_parameters_of_the_gate(pytester: pytest.Pytester) -> None:
    arguments = ("--model", "qwen3.5", "-m", "features", "--collect-only", "-q")
    ran = pytester.runpytest_subprocess(*arguments, "--features", "ngram,guidance+small-steps")
    names = [line for line in ran.outlines if "test_answers_as_without_them" in line]
    assert [name.partition("[")[2] for name in names] == [
        "qwen3.5-ngram]", "qwen3.5-guidance+small-steps]"
    ]  # fmt: skip


def test_the_lanes_own_features_are_planned_in_the_header(pytester: pytest.Pytester) -> None:
    lane = (lanes.SHIPPED / "cpu.toml").read_text("utf-8")
    lane += "[serve]\nstream_interval = 8\nenable_prefix_caching = true\n"
    pytester.mkdir("lanes").joinpath("cpu.toml").write_text(lane, encoding="utf-8")
    arguments = ("--model", "qwen3.5", "--lane", "cpu", "-m", "features", "--collect-only")
    ran = pytester.runpytest_subprocess(*arguments, "--features", "deployed,ngram")
    ran.stdout.fnmatch_lines([
        "vllm gates: features deployed: prefix-caching+stream-interval, one boot more",
        "vllm gates: features ngram, one boot more",
        "vllm gates: features take about 2 min on an idle machine",
        "*test_answers_as_without_them[[]qwen3.5-deployed[]]*",
    ])  # fmt: skip


def test_an_incident_that_is_sent_again_brings_its_combination() -> None:
    incident = SimpleNamespace(
        gate="features", family="gemma/3",
        test="test_answers_as_without_them[gemma/3-ngram+no-prefix-caching]",
    )  # fmt: skip
    options, machine = SimpleNamespace(features=None), SimpleNamespace(gpus=())
    replays: Any = SimpleNamespace(repro=SimpleNamespace(incident=incident))
    lane: Any = SimpleNamespace(serve={}, env={})
    (combination,) = resolve._combinations(options, machine, replays, lane)  # type: ignore[arg-type]
    assert combination.name == "ngram+no-prefix-caching"
    incident.gate = "streaming"
    assert resolve._combinations(options, machine, replays, lane) == ()  # type: ignore[arg-type]


def test_pairs_boot_deadly_features_separately_on_their_release() -> None:
    options, machine = SimpleNamespace(features="pairs"), SimpleNamespace(gpus=())
    replays: Any = SimpleNamespace(repro=None)

    def first(family: str, lane: str) -> str:
        combinations = resolve._combinations(
            options, machine, replays, lanes.load(lane, NOWHERE), [families.load(family, NOWHERE)]  # type: ignore[arg-type]
        )  # fmt: skip
        return combinations[0].name

    assert first("qwen3.5", "cpu") == "ngram"
    assert first("gemma/3", "cpu").startswith("ngram+")


def test_an_incident_of_adapters_brings_its_combination_too() -> None:
    options, machine = SimpleNamespace(features=None), SimpleNamespace(gpus=())
    incident = SimpleNamespace(
        gate="adapters", family="qwen3.5",
        test="test_answers_name_their_adapter[qwen3.5-lora-two]",
    )  # fmt: skip
    replays: Any = SimpleNamespace(repro=SimpleNamespace(incident=incident))
    lane: Any = SimpleNamespace(serve={}, env={})
    (combination,) = resolve._combinations(options, machine, replays, lane)  # type: ignore[arg-type]
    assert combination.name == "lora-two"
    # The test of a server that has adapters without any feature boots nothing else.
    incident.test = "test_answers_name_their_adapter[qwen3.5-none]"
    assert resolve._combinations(options, machine, replays, lane) == ()  # type: ignore[arg-type]


def asked(combinations: Sequence[str], *fixtures: str, base_url: str | None = None) -> list[str]:
    """Return which fixtures are made before the run's own server ends."""
    made = []

    def make(name: str) -> Any:
        made.append(name)
        return SimpleNamespace(own=None)

    run: Any = SimpleNamespace(combinations=combinations, lane=SimpleNamespace(base_url=base_url))
    session = SimpleNamespace(
        items=[SimpleNamespace(fixturenames=["launch"]), SimpleNamespace(fixturenames=fixtures)]
    )
    request: Any = SimpleNamespace(session=session, getfixturevalue=make)
    feature_fixtures.asked_without_features.__wrapped__(run, request)  # type: ignore[attr-defined]
    return made


def test_own_server_gets_requests_before_another_gate_ends_it() -> None:
    assert asked(["lora"], "combination") == ["feature_boots"]
    assert asked([], "combination") == [], "no features are requested"
    assert asked(["lora"], "server") == [], "no gate of combinations runs"
    assert asked(["lora"], "combination", base_url="http://host/v1") == [], "it is not this run's"


def test_gate_that_ends_the_server_sends_its_requests_first() -> None:
    tree = ast.parse(verdict_gates.gate_files()["boot"].read_text())
    (ends,) = (one for one in tree.body if getattr(one, "name", "") == "test_leaves_nothing_behind")
    marks = [ast.unparse(mark) for mark in ends.decorator_list]  # type: ignore[attr-defined]
    assert any(
        mark.startswith("pytest.mark.usefixtures(") and "'asked_without_features'" in mark
        for mark in marks
    )


def test_a_feature_without_its_package_does_not_apply() -> None:
    (suffix,) = catalog.chosen("suffix", catalog.load(), gpus=False)
    refuse = feature_fixtures._refuse_without_packages
    with pytest.raises(NotApplicable, match="suffix needs the package arctic-inference, which"):
        refuse(suffix, {"vllm": "0.32.0"}, "cpu")
    refuse(suffix, {"vllm": "0.32.0", "arctic-inference": "0.1.1"}, "cpu")
    refuse(suffix, {}, "image")  # nothing is known of it


HEALTHY_AND_DEAD = """
the server came up healthy and failed its first prompt: the first chat ended in an error: …
  seen:  line 208, 2 times, by Worker
         AttributeError: module 'triton.language' has no attribute 'bfloat16'
"""


def test_the_death_of_a_mixture_with_adapters_is_known_of_one_release() -> None:
    defects = known_defects.load_all(Path("/nonexistent"))
    for name in ("lora", "lora-two"):
        case = Case(f"{name}+guidance", {"case": "boot", name: "on", "guidance": "on"})
        finding = Finding(case, HEALTHY_AND_DEAD)
        for version, new in (("0.32.0", ()), ("0.33.0", (finding,))):
            found = known_defects.sort_findings(
                "serves_with_these_features", [finding], [case], defects, version
            )
            assert found.new == new


@pytest.mark.real
@pytest.mark.slow
def test_a_lane_answers_as_without_its_own_features(tmp_path: Path) -> None:
    serve = {"stream_interval": 4, "enable_prefix_caching": True, "max_num_batched_tokens": 512}
    own_lane.write(tmp_path, "deployed", serve=serve)
    arguments = ("--lane", "deployed", "-m", "features", "--features", "deployed")
    ran = gates.run(tmp_path, *arguments, model="gemma/3")
    assert ran.outcomes() == {"features": "PASS"}, ran.output
    assert "features deployed: prefix-caching+small-steps+stream-interval" in ran.output
