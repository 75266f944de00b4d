"""The image: it has the files that the package needs, pinned packages, and no root."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
DOCKERFILE = ROOT / "container" / "Dockerfile"
LOCK = ROOT / "container" / "requirements.txt"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions with their arguments; lines that go on are one."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def copied() -> list[tuple[str, str]]:
    """Return what is copied into the image, and where it goes."""
    words = [argument.split() for name, argument in instructions() if name == "COPY"]
    return [(source, target) for *sources, target in words for source in sources]


def test_what_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignore[0] == "*"
    for source, _ in copied():
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignore, source


def test_what_the_build_of_the_package_reads_is_copied() -> None:
    hatch = PYPROJECT["tool"]["hatch"]
    read = {
        "pyproject.toml", "README.md", *PROJECT["license-files"], hatch["version"]["path"],
        hatch["metadata"]["hooks"]["custom"]["path"],
        *hatch["build"]["targets"]["wheel"]["only-include"],
    }  # fmt: skip
    sources = [Path(source) for source, _ in copied()]
    left_out = [path for path in read if not {Path(path), *Path(path).parents} & {*sources}]
    assert left_out == []


def test_it_does_not_run_as_root() -> None:
    users = [argument for name, argument in instructions() if name == "USER"]
    # Kubernetes' runAsNonRoot reads numbers alone.
    assert users == ["1000"]
    assert any("--uid 1000" in argument for name, argument in instructions() if name == "RUN")


@pytest.mark.parametrize(
    "wanted", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["store"]]
)
def test_lock_has_a_version_that_the_package_takes(wanted: str) -> None:
    pins = {
        name.lower(): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", LOCK.read_text(), re.MULTILINE)
    }
    requirement = Requirement(wanted)
    assert requirement.specifier.contains(pins[requirement.name.lower()])


def test_lock_has_checksums_and_no_address() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert "://" not in text
    for entry in re.split(r"\n(?=[\w.-]+==)", text):
        assert "--hash=sha256:" in entry, entry.partition("\n")[0]


@pytest.mark.slow  # it installs every package
def test_its_steps_make_a_program_that_runs(tmp_path: Path) -> None:
    """What the builder would do with Python, in a new environment in place of a new image."""
    image = tmp_path / "image"
    for source, target in copied():
        place = image / target.lstrip("/")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place = place / source if target.endswith("/") else place
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, place)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "python"], check=True)
    for name, argument in instructions():
        if name == "RUN" and argument.startswith("pip "):
            words = shlex.split(argument.partition(" && ")[0].replace("/opt/", f"{image}/opt/"))
            subprocess.run([tmp_path / "python" / "bin" / words[0], *words[1:]], check=True)
    listed = subprocess.run(
        [tmp_path / "python" / "bin" / "vllm-gates", "lane", "list"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "cpu-previous" in listed.stdout
