"""The command line of the miniatures."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from pytest_vllm_gates.checkpoints import adapters, miniatures
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.miniatures import __main__


def test_list_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["list"]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == list(miniatures.names())
    assert "Qwen3_5ForCausalLM" in printed


def test_verify_shipped_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["verify", "qwen3.5"]) == 0
    assert capsys.readouterr().out.startswith("qwen3.5: whole, ")


def test_verify_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["verify", "nobody"]) == 1
    assert "error: no miniature 'nobody'\nknown ones: " in capsys.readouterr().err


def test_build_without_torch_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepare(*_: object, **__: object) -> None:
        raise UserError("lane cpu: no network")

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr("pytest_vllm_gates.environment.environment.prepare", prepare)
    assert __main__.main(["build", "qwen3.5"]) == 1
    error = capsys.readouterr().err
    assert "this interpreter has no torch, and lane cpu: no network" in error
    assert "build NAME --python PATH" in error


def test_build_with_a_python_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(["build", "qwen3.5", "--python", str(tmp_path / "python")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_build_in_another_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[tuple[str, list[str], dict[str, str]]] = []

    def execve(path: str, command: list[str], environment: dict[str, str]) -> None:
        started.append((path, command, environment))
        raise SystemExit

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(SystemExit):
        __main__.main(
            [
                "build",
                "gemma-4",
                "--python",
                sys.executable,
                "--seed",
                "3",
                "--output",
                str(tmp_path),
                "--state",
                str(tmp_path / "state"),
            ]
        )
    [(path, arguments, environment)] = started
    assert path == sys.executable
    assert arguments[1:] == [
        "-m", "pytest_vllm_gates.miniatures", "build", "gemma-4",
        "--output", str(tmp_path), "--state", str(tmp_path / "state"), "--seed", "3",
    ]  # fmt: skip
    assert Path(environment["PYTHONPATH"], "pytest_vllm_gates", "miniatures").is_dir()


@pytest.mark.parametrize(
    ("command", "lacks", "file"),
    [
        ("adapters", "no adapters\ndescribe them", "adapters.toml"),
        ("draft-head", "no draft head\ndescribe it", "draft_head.toml"),
    ],
)
def test_an_addition_that_a_miniature_lacks_is_not_built(
    command: str, lacks: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main([command, "glm-4.7"]) == 1
    error = capsys.readouterr().err
    assert f"miniature glm-4.7 has {lacks} in " in error
    assert error.endswith(f"recipes/glm-4.7/{file}\n")


@pytest.mark.parametrize(("command", "name"), [("adapters", "qwen3.5"), ("draft-head", "llama-3")])
def test_additions_are_built_in_another_interpreter(
    command: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def execve(_: str, command: list[str], __: dict[str, str]) -> None:
        started.append(command)
        raise SystemExit

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(SystemExit):
        __main__.main([command, name, "--python", "/other/python"])
    ((_, *arguments),) = started
    assert arguments == ["-m", "pytest_vllm_gates.miniatures", command, name]


def test_a_changed_adapter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(adapters.FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(adapters, "FOLDER", tmp_path)
    (tmp_path / "qwen3.5" / "sailor" / "adapter_config.json").write_text("{}")
    with pytest.raises(
        miniatures.MiniatureError, match=r"adapter_config\.json has 2 bytes"
    ) as caught:
        adapters.paths("qwen3.5")
    assert str(caught.value).endswith("python -m pytest_vllm_gates.miniatures adapters qwen3.5")


def test_light_import() -> None:
    for heavy in ("torch", "transformers", "tokenizers", "jinja2"):
        assert heavy not in vars(miniatures)
