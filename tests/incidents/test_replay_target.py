"""A replay uses the incident's own lane and checkpoint, or a substitute for them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from incident_folders_made import incident

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import (
    read as incidents_read,
    replay_target,
    write as incidents_write,
)
from pytest_vllm_gates.incidents.types import ServedCheckpoint, ServedLane

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.family import Family

CPU = Path(__file__).with_name("full_lane.toml").read_text(encoding="utf-8")
TEMPLATE = b"{{ 'another template' }}"


def incident_folder(
    folder: Path, files: Mapping[str, str | bytes] | None = None, **more: Any
) -> Any:
    """Write an incident with these files and read it."""
    data = {
        name: text.encode() if isinstance(text, str) else text
        for name, text in (files or {}).items()
    }
    return incidents_read.read(incidents_write.write(folder, "a", incident(**more), [], data))


def lane(name: str, form: str = "lock") -> ServedLane:
    return ServedLane(name=name, title="", form=form, env={}, serve={}, overlay=())


def test_a_shipped_lane_is_taken_by_its_name(tmp_path: Path) -> None:
    chosen = replay_target.lane_of(incident_folder(tmp_path, lane=lane("cpu-previous")), tmp_path)
    assert chosen == lanes.load("cpu-previous", tmp_path)


def test_the_projects_own_lane_of_that_name_comes_first(tmp_path: Path) -> None:
    (tmp_path / "lanes").mkdir()
    (tmp_path / "lanes/cpu.toml").write_text(CPU.replace("0.32.0", "of our own"), encoding="utf-8")
    chosen = replay_target.lane_of(incident_folder(tmp_path, {"lane.toml": CPU}), tmp_path)
    assert chosen and "of our own" in chosen.title


def test_incidents_lane_precedes_the_shipped_lane_of_its_name(tmp_path: Path) -> None:
    text = CPU.replace("enforce_eager = true", "enforce_eager = false\nmax-num-seqs = 2")
    chosen = replay_target.lane_of(incident_folder(tmp_path, {"lane.toml": text}), tmp_path)
    assert chosen and chosen.serve["max-num-seqs"] == 2
    assert chosen.lock_path == lanes.SHIPPED / "cpu.txt"
    assert chosen.overlay_path == lanes.SHIPPED / "cpu-overlay"


def test_incidents_lane_of_a_release_is_completed(tmp_path: Path) -> None:
    text = (lanes.SHIPPED / "cpu-previous.toml").read_text(encoding="utf-8")
    carried = incident_folder(tmp_path, {"lane.toml": text}, lane=lane("ours"))
    chosen = replay_target.lane_of(carried, tmp_path)
    shipped = lanes.load("cpu-previous", tmp_path)
    assert chosen and chosen.lock_path == shipped.lock_path
    assert (chosen.start, chosen.env, chosen.serve) == (shipped.start, shipped.env, shipped.serve)


@pytest.mark.parametrize("recorded", [lane("base-url", "base_url"), lane("no-such-lane")])
def test_unknown_lane_leaves_the_choice_to_the_run(recorded: ServedLane, tmp_path: Path) -> None:
    assert replay_target.lane_of(incident_folder(tmp_path, lane=recorded), tmp_path) is None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[env]", '[env]\nPYTHONPATH = "/evil"', "env PYTHONPATH"),
        ("[env]", '[env]\nLD_PRELOAD = "evil.so"', "env LD_PRELOAD"),
        ("[serve]", '[serve]\nmiddleware = "evil.App"', "serve middleware"),
        ("[serve]", '[serve]\nlogits-processors = "evil:P"', "serve logits-processors"),
        ("[serve]", "[serve]\ntrust_remote_code = true", "serve trust_remote_code"),
        ("[serve]", '[serve]\nchat_template = "/etc/passwd"', "serve chat_template"),
        (
            "[serve]",
            '[serve]\nreasoning_parser = { a = "b" }',
            "serve reasoning_parser = {'a': 'b'} (allowed: one word)",
        ),
        ('lock = "cpu.txt"', 'lock = "../../evil.txt"', "lock '../../evil.txt'"),
        ('overlay = "cpu-overlay"', 'overlay = "/evil"', "overlay '/evil'"),
        ('"vllm.entrypoints.launchers.api_server.entry"', '"evil"', "start"),
    ],
)
def test_incidents_lane_that_could_run_code_is_refused(
    old: str, new: str, says: str, tmp_path: Path
) -> None:
    assert old in CPU
    carried = incident_folder(tmp_path, {"lane.toml": CPU.replace(old, new, 1)}, lane=lane("ours"))
    with pytest.raises(UserError) as refused:
        replay_target.lane_of(carried, tmp_path)
    assert f"it sets {says}, which could run any program" in str(refused.value)
    assert str(carried.folder / "lane.toml") in str(refused.value)
    assert "--lane NAME" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        'title = "a"\npython = "/evil"\n',
        'title = "a"\ncommand = ["evil"]\n',
        'vllm = "0.32.0"\nlock = "/evil.txt"\n',
    ],
    ids=["an interpreter", "a command", "a lock of a release"],
)
def test_an_incidents_lane_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    carried = incident_folder(tmp_path, {"lane.toml": text}, lane=lane("ours"))
    with pytest.raises(UserError, match="evil"):
        replay_target.lane_of(carried, tmp_path)


def test_prompt_files_never_reach_the_package(qwen: Family, tmp_path: Path) -> None:
    small = checkpoints_resolve.miniature(qwen)
    assert small
    config = Path(small.source) / "config.json"
    before = config.read_bytes()
    carried = incident_folder(
        tmp_path, {"prompt_files/config.json": b"{}"}, checkpoint=recorded_checkpoint("ours")
    )
    with pytest.raises(UserError, match=r"prompt_files/config\.json, which is not a prompt file"):
        replay_target.checkpoint_of(carried, qwen)
    assert config.read_bytes() == before


def recorded_checkpoint(name: str, source: str = "/nowhere/at/all") -> ServedCheckpoint:
    return ServedCheckpoint(name=name, source=source, revision=None)


def test_local_checkpoint_is_taken(qwen: Family, tmp_path: Path) -> None:
    small = checkpoints_resolve.miniature(qwen)
    assert small
    weights = shutil.copytree(small.source, tmp_path / "weights")
    checkpoint, note = replay_target.checkpoint_of(
        incident_folder(tmp_path, checkpoint=recorded_checkpoint("ours", str(weights))), qwen
    )
    assert (checkpoint.name, checkpoint.source, note) == ("ours", str(weights), "")


def test_miniature_is_known_by_its_name(qwen: Family, tmp_path: Path) -> None:
    checkpoint, note = replay_target.checkpoint_of(
        incident_folder(tmp_path, checkpoint=recorded_checkpoint("miniature")), qwen
    )
    assert (checkpoint, note) == (checkpoints_resolve.miniature(qwen), "")


@pytest.mark.parametrize("source", ["/nowhere/at/all", "org/not-in-the-cache"])
def test_miniature_replaces_weights_that_are_not_judged(
    source: str, qwen: Family, tmp_path: Path
) -> None:
    absent = incident_folder(tmp_path, gate="tools", checkpoint=recorded_checkpoint("big", source))
    checkpoint, note = replay_target.checkpoint_of(absent, qwen)
    assert checkpoint == checkpoints_resolve.miniature(qwen)
    assert note == (
        f"the checkpoint {source} is not on this machine: the miniature replaces it, because the "
        "gate does not judge the weights"
    )


def test_gate_of_the_weights_needs_the_weights(qwen: Family, tmp_path: Path) -> None:
    absent = incident_folder(tmp_path, gate="numerics", checkpoint=recorded_checkpoint("big"))
    with pytest.raises(UserError, match=r"is not on this machine, and its gate judges the weights"):
        replay_target.checkpoint_of(absent, qwen)


def test_incidents_prompt_files_are_used_with_the_miniature(qwen: Family, tmp_path: Path) -> None:
    small = checkpoints_resolve.miniature(qwen)
    assert small
    files = {"prompt_files/chat_template.jinja": TEMPLATE, "prompt_files/tokenizer.json": b"{}"}
    edited = incident_folder(
        tmp_path, files, gate="chat_template", checkpoint=recorded_checkpoint("miniature")
    )
    checkpoint, note = replay_target.checkpoint_of(edited, qwen)
    assert "prompt files are the incident's, weights are the miniature's" in note
    folder = Path(checkpoint.source)
    assert (checkpoint.name, checkpoint.serve) == ("miniature", small.serve)
    assert (folder / "chat_template.jinja").read_bytes() == TEMPLATE
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert not (folder / "generation_config.json").exists(), "it is not among the incident's"
    for name in ("config.json", "model.safetensors"):
        assert (folder / name).read_bytes() == (Path(small.source) / name).read_bytes()
