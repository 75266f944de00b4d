"""Installed distributions: their origin, and whether their files were changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from environment.site_packages import distribution
from pytest_vllm_gates.environment import installed

if TYPE_CHECKING:
    from pathlib import Path


def test_same_wheel_has_the_same_contents_anywhere(tmp_path: Path) -> None:
    distribution(tmp_path / "one", "vllm", "0.32.0", installer="uv")
    distribution(tmp_path / "two", "vllm", "0.32.0", installer="pip", direct_url={"url": "x"})
    contents, other_contents = (installed.contents([tmp_path / name]) for name in ("one", "two"))
    assert contents == other_contents
    assert [*contents] == ["vllm"]


def test_another_build_of_a_version_has_other_contents(tmp_path: Path) -> None:
    distribution(tmp_path / "one", "vllm", "0.32.0", {"vllm/a.py": "1"})
    distribution(tmp_path / "two", "vllm", "0.32.0", {"vllm/a.py": "2"})
    contents, other_contents = (installed.contents([tmp_path / name]) for name in ("one", "two"))
    assert contents != other_contents


def test_files_that_were_edited_or_removed_are_named(tmp_path: Path) -> None:
    files = {"vllm/a.py": "1", "vllm/b.py": "2", "vllm/c.py": "3"}
    distribution(tmp_path, "vllm", "0.32.0", files)
    (edited,) = installed.installed([tmp_path]).values()
    assert [*edited.changed()] == []
    (tmp_path / "vllm/a.py").write_text("4")
    (tmp_path / "vllm/c.py").unlink()
    assert [*edited.changed()] == ["vllm/a.py", "vllm/c.py"]


def test_large_library_is_compared_by_size(tmp_path: Path) -> None:
    text = "x" * (installed.READ_BYTES + 1)
    distribution(tmp_path, "vllm", "0.32.0", {"vllm/lib.so": text})
    (library,) = installed.installed([tmp_path]).values()
    (tmp_path / "vllm/lib.so").write_text(text + "y")
    assert [*library.changed()] == ["vllm/lib.so"]


def test_origin_of_a_distribution_is_read(tmp_path: Path) -> None:
    distribution(tmp_path, "from-index", "1")
    distribution(
        tmp_path, "mine", "1", direct_url={"url": "file:///src", "dir_info": {"editable": True}}
    )
    (tmp_path / "old-1.dist-info").mkdir()
    distributions = installed.installed([tmp_path, tmp_path / "nowhere"])
    assert [*distributions] == ["from-index", "mine", "old"]
    assert [each.editable for each in distributions.values()] == [False, True, False]
    assert [each.recorded for each in distributions.values()] == [True, True, False]
    assert distributions["mine"].direct_url["url"] == "file:///src"
