"""Each part of a bundle that cannot be known has its reason, and how to make it known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import huggingface_hub.constants
import pytest

from lanes.described import describe, write
from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.lanes.diff import differences

if TYPE_CHECKING:
    from pathlib import Path

URL = 'base_url = "http://host:8000/v1"\n'
NO_MODEL = "chat template, tokenizer and checkpoint are compared with --model NAME"


def test_lane_that_is_known_has_no_gap(small_project: Path) -> None:
    assert describe(write(small_project, "mine", 'python = "../bin/python"\n'), "glm").gaps == ()


def test_server_by_url_gives_its_version_alone(small_project: Path) -> None:
    lane = write(small_project, "stable", URL)
    assert describe(lane, "glm", server_version="0.32.0").gaps == (
        "stable is a URL: only the version of vLLM is known of its bundle, read from its server",
        "for the flags of stable, list them in [serve] of lanes/stable.toml",
        "for the chat template, tokenizer and checkpoint of stable, add checkpoint = "
        '"FOLDER or Hub id" to lanes/stable.toml',
    )
    first, *_ = describe(lane, "glm").gaps
    assert first == "stable is a URL: its server did not answer GET /version"


def test_what_a_url_s_lane_declares_is_compared(small_project: Path) -> None:
    declared = f'{URL}checkpoint = "miniature"\n[serve]\nmax_model_len = 4096\n'
    url = describe(write(small_project, "stable", declared), "glm", server_version="0.32.0")
    assert url.gaps[1:] == ("for more flags of stable, add them to [serve] of lanes/stable.toml",)
    assert url.checkpoints is not None
    assert url.checkpoints["glm"]["source"] == str(miniatures.path("glm-4.7"))
    booted = describe(write(small_project, "mine", 'python = "../bin/python"\n'), "glm")
    diff = differences(url, booted)
    assert {"chat template", "tokenizer", "checkpoint"} <= {*diff.same}
    assert diff.why == url.gaps


def test_lane_without_a_model_reports_what_compares_templates(small_project: Path) -> None:
    lane = write(small_project, "mine", 'python = "../bin/python"\n')
    diff = differences(describe(lane), describe(lane))
    assert diff.why == (NO_MODEL,)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            '["ssh", "host", "vllm"]',
            "there runs by a command elsewhere: its packages, CUDA, files and machine",
        ),
        ('["docker", "run", "image"]', "there runs by a command: its packages, CUDA and files"),
    ],
)
def test_command_s_packages_are_unknown(small_project: Path, command: str, sentence: str) -> None:
    (gap,) = describe(write(small_project, "there", f"command = {command}\n"), "glm").gaps
    assert gap.startswith(sentence)
    assert "vllm-gates lane freeze NAME --python PATH" in gap


def test_weights_that_are_not_here_are_named(
    small_project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(small_project))
    hub = next(
        entry.hub
        for entry in families.load("glm", small_project).checkpoints
        if entry.hub is not None
    )
    lane = write(small_project, "stable", f'{URL}checkpoint = "{hub}"\n[serve]\nseed = 1\n')
    assert (
        f"the files of {hub} are not in the Hub's cache of this machine: hf download {hub}"
        in describe(lane, "glm", checkpoint=None, server_version="0.32.0").gaps
    )
