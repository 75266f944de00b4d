"""The distributions have everything they need and nothing more, and work when installed alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import wheels
from e2e import gates
from packaging.metadata import Metadata

import pytest_vllm_gates

PACKAGE = Path(pytest_vllm_gates.__file__).parent
NAME = PACKAGE.name
IGNORED = re.compile(r"(^|/)(__pycache__/|baselines/)|\.pyc$")
LIMIT_S = 120.0


def files(folder: Path, under: str) -> set[str]:
    """Return every file of a folder of the checkout, by its name below `under`."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {f"{under}/{name}" for name in names if not IGNORED.search(f"{folder.name}/{name}")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist of this checkout, as of one in which a baseline was recorded."""
    checkout = tmp_path_factory.mktemp("checkout") / "checkout"
    shutil.copytree(wheels.ROOT, checkout, ignore=not_ours)
    recorded = checkout / "golden" / "baselines" / "machine" / "recorded.json"
    recorded.parent.mkdir(parents=True, exist_ok=True)
    recorded.write_text("{}")
    return wheels.build(checkout, tmp_path_factory.mktemp("built"))


def not_ours(_: str, names: list[str]) -> list[str]:
    """Return what of a folder is no part of the project: caches, environments, git's own."""
    return [
        name
        for name in names
        if name == "__pycache__" or (name.startswith(".") and name != ".gitignore")
    ]


@pytest.fixture(scope="module")
def in_wheel(built: tuple[Path, Path]) -> list[str]:
    with zipfile.ZipFile(built[0]) as wheel:
        return wheel.namelist()


def test_wheel_has_exactly_the_package_and_the_goldens(in_wheel: list[str]) -> None:
    # Built from the sdist: what that lacked would be missing here.
    assert len(in_wheel) == len(set(in_wheel))
    expected = files(PACKAGE, NAME) | files(wheels.ROOT / "golden", f"{NAME}/golden")
    expected |= files(wheels.ROOT / "docs" / "gates", f"{NAME}/gate_pages")
    packed = {name for name in in_wheel if ".dist-info/" not in name}
    assert packed == expected
    for kind in ("py.typed", "model.safetensors", "page.html", ".jinja", "cpu.txt", "schema.json"):
        assert any(name.endswith(kind) for name in packed), kind


def test_wheel_has_the_licence(built: tuple[Path, Path], in_wheel: list[str]) -> None:
    (licence,) = (name for name in in_wheel if name.endswith(".dist-info/licenses/LICENSE"))
    with zipfile.ZipFile(built[0]) as wheel:
        text = wheel.read(licence).decode()
    assert text == (wheels.ROOT / "LICENSE").read_text()
    assert "Apache License\n" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_sdist_has_everything_its_tests_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    expected = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "conftest.py"}
    for folder in (NAME, "golden", "tests", "docs", "benchmarks"):
        expected |= files(wheels.ROOT / folder, folder)
    assert not expected - packed
    assert not any("baselines/" in name for name in packed)


def test_metadata_is_complete(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        (name,) = (entry for entry in wheel.namelist() if entry.endswith(".dist-info/METADATA"))
        content = wheel.read(name)
    metadata = Metadata.from_email(content, validate=True)
    project = tomllib.loads((wheels.ROOT / "pyproject.toml").read_text())["project"]
    assert str(metadata.version) == pytest_vllm_gates.__version__
    assert "version" in project["dynamic"]
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE"]
    assert str(metadata.requires_python) == ">=3.11"
    assert metadata.summary == (pytest_vllm_gates.__doc__ or "").partition("\n")[0]
    assert metadata.author or metadata.author_email
    assert {"Framework :: Pytest", "Typing :: Typed"} <= set(metadata.classifiers or ())
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (wheels.ROOT / "README.md").read_text()


@pytest.fixture(scope="module", params=["this", "newer"])
def programs(
    request: pytest.FixtureRequest,
    built: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The programs of an environment that holds the wheel alone, on one Python after the other."""
    python = sys.executable if request.param == "this" else wheels.newer_python()
    if python is None:
        pytest.skip(wheels.NO_NEWER)
    return wheels.install(tmp_path_factory.mktemp("installed"), built[0], python)


def run(programs: Path, folder: Path, program: str, *arguments: str) -> str:
    """Run an installed program in a folder; it has to go well, and warn of nothing."""
    env = gates.environment({"VLLM_GATES_CACHE": str(folder / "cache")})
    env.pop("PYTHONPATH", None)
    done = subprocess.run(
        [programs / program, *arguments], cwd=folder, env=env, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def test_installed_wheel_works_in_an_empty_folder(programs: Path, tmp_path: Path) -> None:
    (package,) = programs.parent.glob(f"lib/python*/site-packages/{NAME}")
    assert (package / "py.typed").is_file()
    assert "preflight" in run(programs, tmp_path, "vllm-gates", "--help")
    listed = run(programs, tmp_path, "pytest", "--model", "qwen3.5", "--co", "-q", "-W", "error")
    assert "gates/test_boot.py::test_boots[qwen3.5]" in listed.splitlines()
    looked = run(programs, tmp_path, "vllm-gates", "preflight", "--model", "qwen3.5")
    assert re.search(r"^\d+ ok, ", looked, re.MULTILINE)
    assert "fails" not in looked
