"""The weights for a name are found, and an unknown name is reported."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.checkpoints import miniatures, resolve as resolver
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Fakes
    from pytest_vllm_gates.catalog.family import Family


def served_at(url: str) -> Endpoint:
    return Endpoint(url, "")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "my-weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_default_checkpoint_is_the_first(qwen: Family) -> None:
    assert resolver.resolve(qwen, None).source == qwen.checkpoints[0].hub


@pytest.mark.parametrize("name", ["4B", "4b", "Qwen/Qwen3.5-4B", "qwen/qwen3-5-4b"])
def test_a_member_is_found_by_its_name_or_its_hub_id(qwen: Family, name: str) -> None:
    checkpoint = resolver.resolve(qwen, name)
    assert checkpoint.source == "Qwen/Qwen3.5-4B"
    assert checkpoint.name == "Qwen--Qwen3.5-4B"
    assert checkpoint.folder is None


def test_the_miniature_is_a_folder_with_its_own_flags(qwen: Family) -> None:
    checkpoint = resolver.resolve(qwen, "Miniature")
    assert checkpoint.name == "miniature"
    assert checkpoint.folder == miniatures.path("qwen3.5")
    assert checkpoint.serve["max_model_len"] == 4096
    assert checkpoint.untaught == ()


def test_miniature_lists_untaught_questions(tmp_path: Path) -> None:
    gemma = families.load("gemma/3", tmp_path)
    assert resolver.resolve(gemma, "miniature").untaught == ("digit", "count", "which")
    assert resolver.resolve(gemma, "4b").untaught == ()


def test_weights_folder_is_accepted(
    qwen: Family, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Checkpoint(name="my-weights", source=str(weights))
    assert resolver.resolve(qwen, str(weights)) == expected
    monkeypatch.chdir(weights.parent)
    assert resolver.resolve(qwen, "./my-weights") == expected
    monkeypatch.setenv("HOME", str(weights.parent))
    assert resolver.resolve(qwen, "~/my-weights") == expected


@pytest.mark.parametrize("name", ["miniature", "4B", "Qwen/Qwen3.5-4B"])
def test_path_is_a_folder_even_if_its_name_is_listed(
    qwen: Family, weights: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(weights.parent)
    folder = weights.parent / name
    folder.parent.mkdir(exist_ok=True)
    weights.rename(folder)
    for spelling in (f"./{name}", f"{name}/", f"./{name}/", f"../{weights.parent.name}/{name}"):
        assert resolver.resolve(qwen, spelling).source == str(folder), spelling
        assert resolver.is_source(spelling, ["qwen3.5", name])
    assert resolver.resolve(qwen, name).source != str(folder)


HOUSE = """
[[checkpoints]]
name = "house"
folder = "../my-weights"
serve = {max_model_len = 64}
"""


def test_listed_folder_is_relative_to_the_family_file(qwen: Family, weights: Path) -> None:
    (weights.parent / "families").mkdir()
    shipped = families.SHIPPED.joinpath("qwen3.5.toml").read_text(encoding="utf-8")
    family_file = shipped[: shipped.index("[[checkpoints]]")] + HOUSE
    (weights.parent / "families" / "house.toml").write_text(family_file, encoding="utf-8")
    house = families.load("house", weights.parent)
    expected = Checkpoint(name="my-weights", source=str(weights), serve={"max_model_len": 64})
    for name in (None, "house", str(weights)):
        assert resolver.resolve(house, name) == expected
    cpu = lanes.load("cpu", weights.parent)
    assert resolver.on_lane(house, cpu) == expected, "it has no miniature"
    assert resolver.on_lane(qwen, cpu).name == "miniature"
    assert resolver.on_lane(qwen, cpu, "4B").source == "Qwen/Qwen3.5-4B"
    shutil.rmtree(weights)
    with pytest.raises(UserError, match="my-weights, which does not exist"):
        resolver.resolve(house, None)


def test_a_folder_without_a_config_is_refused(qwen: Family, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.json: not a checkpoint folder"):
        resolver.resolve(qwen, str(tmp_path))


def test_any_hub_id_is_accepted(qwen: Family) -> None:
    checkpoint = resolver.resolve(qwen, "my-org/Qwen3.5-4B.tuned")
    assert (checkpoint.name, checkpoint.source) == (
        "my-org--Qwen3.5-4B.tuned",
        "my-org/Qwen3.5-4B.tuned",
    )


@pytest.mark.parametrize("name", ["minature", "5B", "a/b/c", "./nothing", "../a", "/no/such", " "])
def test_unknown_name_lists_the_known_ones(qwen: Family, name: str) -> None:
    with pytest.raises(UserError) as caught:
        resolver.resolve(qwen, name)
    message = str(caught.value)
    assert message.startswith(f"unknown checkpoint {name!r} of qwen3.5")
    assert ("did you mean 'miniature'?" in message) == (name == "minature")
    names = ", ".join(checkpoint.name for checkpoint in qwen.checkpoints)
    assert f"\nknown: {names}; " in message
    assert "or name a local folder, or a Hub id" in message


@pytest.mark.parametrize("fault", ["cut", "changed", "gone", "no lock"])
def test_incomplete_miniature_names_the_build_command(
    qwen: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    folder = tmp_path / "qwen3.5"
    shutil.copytree(miniatures.path("qwen3.5"), folder)
    monkeypatch.setattr(miniatures, "CHECKPOINTS", tmp_path)
    file = folder / ("lock.json" if fault == "no lock" else "model.safetensors")
    data = file.read_bytes()
    if fault == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif fault == "changed":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        file.unlink()
    with pytest.raises(UserError) as caught:
        resolver.resolve(qwen, "miniature")
    message = str(caught.value)
    assert message.startswith("miniature qwen3.5: ")
    assert str(file) in message
    assert message.endswith("python -m pytest_vllm_gates.miniatures build qwen3.5")


# The checkpoint of a running server.


@pytest.mark.parametrize(
    ("name", "checkpoint_name"),
    [("Qwen/Qwen3.5-4B", "Qwen--Qwen3.5-4B"), ("some-org/Other", "some-org--Other")],
)
def test_running_server_is_identified_by_its_model_name(
    qwen: Family, fakes: Fakes, name: str, checkpoint_name: str
) -> None:
    assert resolver.served(qwen, served_at(fakes(names=(name,)).base_url)).name == checkpoint_name


def test_running_server_of_a_local_folder_is_identified(
    qwen: Family, fakes: Fakes, weights: Path
) -> None:
    server = fakes(names=(str(weights),))
    assert resolver.served(qwen, served_at(server.base_url)).name == "my-weights"
    fake = fakes(names=(str(miniatures.path("qwen3.5")),))
    assert resolver.served(qwen, served_at(fake.base_url)).name == "miniature"


def test_servers_folder_without_a_config_is_not_a_checkpoint(
    qwen: Family, fakes: Fakes, tmp_path: Path
) -> None:
    """A server may report any name: it must not end the run or make a local folder be read."""
    (tmp_path / "config.json").write_text("{")
    for name in ("/etc", str(tmp_path)):
        assert resolver.served(qwen, served_at(fakes(names=(name,)).base_url)).name == "unknown"


def test_servers_folder_is_not_read_as_a_relative_path(
    qwen: Family, fakes: Fakes, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(weights.parent)
    server = fakes(names=(f"./{weights.name}",))
    assert resolver.served(qwen, served_at(server.base_url)).name == "unknown"


@pytest.mark.parametrize(("faults", "key"), [("", "theirs"), ("no-openai", None)])
def test_server_without_a_model_name_has_an_unknown_checkpoint(
    qwen: Family, fakes: Fakes, faults: str, key: str | None
) -> None:
    checkpoint = resolver.served(qwen, served_at(fakes(faults, key=key).base_url))
    assert checkpoint.name == "unknown"


def test_absent_server_has_an_unknown_checkpoint(qwen: Family) -> None:
    assert resolver.served(qwen, served_at("http://127.0.0.1:9/v1")).name == "unknown"


# The family of a checkpoint.


def test_folder_family_is_read_from_its_config(tmp_path: Path, weights: Path) -> None:
    config = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"}
    (weights / "config.json").write_text(json.dumps(config))
    family, reason = resolver.family_of(str(weights), tmp_path)
    assert family.name.startswith("qwen3.5")
    assert reason == " (found by its architecture Qwen3_5ForCausalLM)"


def test_listed_hub_id_needs_no_request(tmp_path: Path) -> None:
    family, reason = resolver.family_of("qwen/qwen3.5-4b", tmp_path)
    assert (family.name, reason) == ("qwen3.5", " (found by its name)")


def test_listed_folder_is_of_the_family_that_lists_it(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "families").mkdir()
    shipped = families.SHIPPED.joinpath("qwen3.5.toml").read_text(encoding="utf-8")
    house = 'recognise = ["*never*"]\n' + shipped[: shipped.index("[[checkpoints]]")] + HOUSE
    (tmp_path / "families" / "house.toml").write_text(house, encoding="utf-8")
    config = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"}
    (weights / "config.json").write_text(json.dumps(config))
    family, reason = resolver.family_of(f"{weights}/", tmp_path)
    assert (family.name, reason) == ("house", " (found by its folder)")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"architectures": ["NoSuchModel"]}', "the architecture NoSuchModel, which no known"),
        ("{}", "names the architecture none"),
        ("{", "is not JSON"),
        (None, "has no config.json: it is not a checkpoint"),
    ],
)
def test_folder_of_an_unknown_family_is_reported(
    tmp_path: Path, weights: Path, config: str | None, message: str
) -> None:
    (weights / "config.json").unlink()
    if config is not None:
        (weights / "config.json").write_text(config)
    with pytest.raises(UserError) as caught:
        resolver.family_of(str(weights), tmp_path)
    assert message in str(caught.value)
    assert str(weights) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "is_source"),
    [
        ("qwen3.5", False), ("Qwen-3.5/9B", False), ("org/name", True), ("xyzzy", False),
        ("a/b/c", False), ("./absent", True), ("../absent", True), ("/no/such", True), ("~x", True),
    ],
)  # fmt: skip
def test_source_and_family_are_distinguished(name: str, is_source: bool) -> None:
    assert resolver.is_source(name, ["qwen3.5", "glm"]) is is_source


@pytest.mark.parametrize("name", ["./absent", "../absent/there", "/no/such/folder"])
def test_missing_folder_is_reported_and_not_looked_up(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"folder .* not found") as caught:
        resolver.family_of(name, tmp_path)
    assert repr(name) in str(caught.value)
