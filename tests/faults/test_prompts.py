"""Checkpoints and goldens that do not fit each other turn the chat_template gate red alone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from sweeps import named, sweep

from faults.prompt_edits import EDITS, Edit, replace
from faults.proxy import Proxy
from pytest_vllm_gates.session.golden_folders import shipped_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from e2e.served import Served

    from faults.conftest import Run
    from faults.upstream import Upstream

pytestmark = pytest.mark.real

GOLDENS = "golden/qwen3.5/main/miniature"
# The server is the real one, unedited: only these gates read the checkpoint's files and the goldens
# of its prompts. The others take several times as long.
READ_FILES = ("-m", "boot or chat_template or numerics")


@pytest.fixture
def base_url(upstream: Upstream) -> Iterator[str]:
    """The real server, through a proxy that remembers its answers and changes nothing."""
    with Proxy(upstream) as proxy:
        yield proxy.base_url


@pytest.fixture
def checkpoint(shared: Served, project: Path) -> Path:
    """A copy of the miniature with the same name, so that its goldens are found."""
    folder = project / "weights" / "miniature"
    return shutil.copytree(shared.checkpoint.source, folder)


@pytest.fixture
def goldens(project: Path) -> Path:
    """A project's own copy of the goldens."""
    return shutil.copytree(shipped_root() / "qwen3.5" / "main" / "miniature", project / GOLDENS)


@pytest.mark.parametrize(
    "edit",
    sweep(
        EDITS,
        lambda edit: edit.name,
        named("one_newline_more", "a_split_special_token"),
    ),
)
def test_edited_checkpoint_fails(edit: Edit, checkpoint: Path, base_url: str, run: Run) -> None:
    edit.change(checkpoint)
    judged_run = run("--base-url", base_url, "--checkpoint", str(checkpoint), *READ_FILES)
    assert judged_run.gates("FAIL") == {"chat_template"}, judged_run.reasons()
    assert any(edit.says in reason for reason in judged_run.reasons()), judged_run.reasons()
    assert judged_run.status == 1


def test_unedited_copy_passes(checkpoint: Path, base_url: str, run: Run) -> None:
    judged_run = run("--base-url", base_url, "--checkpoint", str(checkpoint), *READ_FILES)
    assert judged_run.gates("FAIL") == set(), judged_run.reasons()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(
            lambda file: file.write_text(file.read_text()[:-20]), "it was cut short",
            id="cut short", marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda file: file.write_text("<<<<<<< HEAD\n"), "unresolved merge",
            id="merge conflict", marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda file: file.write_bytes(b"\xff\xfe"), "is not UTF-8 text",
            id="not text", marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda file: replace(file, "assistant", "helper"), "is not what was recorded",
            id="another prompt",
        ),
    ],
)  # fmt: skip
def test_spoilt_golden_fails(
    spoil: Callable[[Path], None], message: str, goldens: Path, base_url: str, run: Run
) -> None:
    spoil(goldens / "prompt-plain.txt")
    judged_run = run("--base-url", base_url, *READ_FILES)
    assert judged_run.gates("FAIL") == {"chat_template"}, judged_run.reasons()
    (reason,) = judged_run.reasons()
    assert message in reason
    assert "--update-golden" in reason


def test_missing_golden_is_missing_and_does_not_fail(
    checkpoint: Path, base_url: str, run: Run
) -> None:
    elsewhere = checkpoint.rename(checkpoint.with_name("finetuned"))
    judged_run = run("--base-url", base_url, "--checkpoint", str(elsewhere), *READ_FILES)
    assert judged_run.gates("FAIL") == set(), judged_run.reasons()
    assert "chat_template" in judged_run.gates("MISSING")
    assert judged_run.verdict["promotion"] == "HOLD"
    assert judged_run.status == 1
    assert any("--update-golden" in reason for reason in judged_run.reasons("MISSING"))
