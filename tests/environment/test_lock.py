"""An environment as the lines of a lock, and packages that no line can describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from environment.lane_site import Site, site_fixture  # noqa: F401, TC001 - a fixture
from environment.site_packages import distribution
from pytest_vllm_gates.environment import installed, lock as environment_lock

if TYPE_CHECKING:
    from collections.abc import Mapping

SHA = "0" * 64


def pinned(
    folder: Path, name: str = "mine", direct_url: Mapping[str, Any] | None = None
) -> environment_lock.Pin:
    distribution(folder, name, "1.2", direct_url=direct_url)
    return environment_lock.pin(installed.installed([folder])[name])


def test_index_package_is_pinned_by_name_and_version(tmp_path: Path) -> None:
    assert pinned(tmp_path) == environment_lock.Pin("mine", "mine==1.2")


@pytest.mark.parametrize(
    ("direct_url", "line"),
    [
        (
            {"url": "https://host/r.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "mine @ git+https://host/r.git@abc",
        ),
        (
            {
                "url": "https://host/r.git",
                "vcs_info": {"vcs": "git", "commit_id": "abc"},
                "subdirectory": "python",
            },
            "mine @ git+https://host/r.git@abc#subdirectory=python",
        ),
        (
            {"url": "https://host/m.whl", "archive_info": {"hashes": {"sha256": SHA}}},
            f"mine @ https://host/m.whl#sha256={SHA}",
        ),
        (
            {"url": "https://host/m.whl", "archive_info": {"hash": f"sha256={SHA}"}},
            f"mine @ https://host/m.whl#sha256={SHA}",
        ),
        ({"url": "https://host/m.whl", "archive_info": {}}, "mine @ https://host/m.whl"),
    ],
)
def test_url_package_is_pinned_with_its_url(
    tmp_path: Path, direct_url: dict[str, Any], line: str
) -> None:
    pin = pinned(tmp_path, direct_url=direct_url)
    assert (pin.line, pin.problem, pin.indexed) == (line, "", False)


@pytest.mark.parametrize(
    ("direct_url", "problem"),
    [
        (
            {"url": "file:///src", "dir_info": {"editable": True}},
            "mine 1.2 is installed editable, from file:///src: its code can change at any time",
        ),
        (
            {"url": "file:///src", "dir_info": {}},
            "mine 1.2 was installed from file:///src, which only this machine has",
        ),
        (
            {"url": "file:///w/mine.whl", "archive_info": {}},
            "mine 1.2 was installed from file:///w/mine.whl, which only this machine has",
        ),
        (
            {"url": "file:///r", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "mine 1.2 was installed from file:///r, which only this machine has",
        ),
        (
            {"url": "https://me:pass@host/m.whl", "archive_info": {}},
            "mine 1.2 was installed from a URL with a password in it",
        ),
    ],
)
def test_packages_a_lock_cannot_pin_are_named(
    tmp_path: Path, direct_url: dict[str, Any], problem: str
) -> None:
    pin = pinned(tmp_path, direct_url=direct_url)
    assert (pin.line, pin.problem) == ("", problem)


def test_edited_package_is_named_with_its_files(tmp_path: Path) -> None:
    distribution(tmp_path, "vllm", "0.32.0", {f"vllm/{name}.py": name for name in "abcde"})
    for name in "abcde":
        (tmp_path / f"vllm/{name}.py").write_text("hot fix")
    assert environment_lock.pin(installed.installed([tmp_path])["vllm"]).problem == (
        "vllm 0.32.0 is not as it was installed: vllm/a.py, vllm/b.py, vllm/c.py and 2 more was "
        "edited or is gone"
    )


def test_package_without_a_file_list_is_named(tmp_path: Path) -> None:
    metadata = distribution(tmp_path, "old", "1")
    (metadata / "RECORD").unlink()
    assert "neither pip nor uv installed it" in environment_lock.pin(
        installed.installed([tmp_path])["old"]
    ).problem  # fmt: skip


ALPHA, TORCH = (
    environment_lock.Pin("alpha", "alpha==1.0"),
    environment_lock.Pin("torch", "torch==2.13.0+cpu"),
)
URL = environment_lock.Pin("mine", "mine @ https://host/m.whl")


def ask(
    *pins: environment_lock.Pin, backend: str | None = None
) -> tuple[Mapping[str, tuple[str, ...]], str]:
    return environment_lock.checksums(pins, Path("/python"), backend, lambda _: None)


def test_checksums_come_from_the_sources(site: Site) -> None:
    assert ask(ALPHA, TORCH, URL) == (
        {"alpha": ("--hash=sha256:alpha-1.0", "--hash=sha256:other")}, "",
    )  # fmt: skip
    (call,) = site.calls()
    assert call[:2] == ["pip", "compile"] and "--generate-hashes" in call and "--no-deps" in call


def test_package_without_a_source_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_UV", "no-version")
    assert ask(ALPHA, TORCH) == ({}, "no configured source has alpha==1.0")
    assert len(site.calls()) == 1


def test_torch_index_is_tried_second(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_UV", "no-torch")
    hashes, reason = ask(ALPHA, TORCH, backend="cpu")
    assert (sorted(hashes), reason) == (["alpha"], "")
    assert site.calls()[1][-2:] == ["--torch-backend", "cpu"]


def test_without_a_network_there_are_no_checksums(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV", "network")
    assert ask(ALPHA) == ({}, "the configured sources cannot be reached")
    assert site.calls()
