"""What is installed, where it came from, and whether it was touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from environment.site_packages import distribution
from pytest_vllm_gates.environment import installed

if TYPE_CHECKING:
    from pathlib import Path


def test_the_same_wheel_has_the_same_contents_wherever_it_lies(tmp_path: Path) -> None:
    distribution(tmp_path / "one", "vllm", "0.32.0", installer="uv")
    distribution(tmp_path / "two", "vllm", "0.32.0", installer="pip", direct_url={"url": "x"})
    entry, two = (installed.contents([tmp_path / name]) for name in ("one", "two"))
    assert entry == two
    assert [*entry] == ["vllm"]


def test_another_build_of_a_version_has_other_contents(tmp_path: Path) -> None:
    distribution(tmp_path / "one", "vllm", "0.32.0", {"vllm/a.py": "1"})
    distribution(tmp_path / "two", "vllm", "0.32.0", {"vllm/a.py": "2"})
    entry, two = (installed.contents([tmp_path / name]) for name in ("one", "two"))
    assert entry != two


def test_files_that_were_edited_or_removed_are_named(tmp_path: Path) -> None:
    files = {"vllm/a.py": "1", "vllm/b.py": "2", "vllm/c.py": "3"}
    distribution(tmp_path, "vllm", "0.32.0", files)
    (found,) = installed.installed([tmp_path]).values()
    assert [*found.changed()] == []
    (tmp_path / "vllm/a.py").write_text("4")
    (tmp_path / "vllm/c.py").unlink()
    assert [*found.changed()] == ["vllm/a.py", "vllm/c.py"]


def test_a_large_library_is_held_to_its_size(tmp_path: Path) -> None:
    text = "x" * (installed.READ_BYTES + 1)
    distribution(tmp_path, "vllm", "0.32.0", {"vllm/lib.so": text})
    (found,) = installed.installed([tmp_path]).values()
    (tmp_path / "vllm/lib.so").write_text(text + "y")
    assert [*found.changed()] == ["vllm/lib.so"]


def test_where_a_distribution_came_from_is_told(tmp_path: Path) -> None:
    distribution(tmp_path, "from-index", "1")
    distribution(
        tmp_path, "mine", "1", direct_url={"url": "file:///src", "dir_info": {"editable": True}}
    )
    (tmp_path / "old-1.dist-info").mkdir()
    found = installed.installed([tmp_path, tmp_path / "nowhere"])
    assert [*found] == ["from-index", "mine", "old"]
    assert [entry.editable for entry in found.values()] == [False, True, False]
    assert [entry.recorded for entry in found.values()] == [True, True, False]
    assert found["mine"].direct_url["url"] == "file:///src"
