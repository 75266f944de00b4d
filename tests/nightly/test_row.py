"""The row between two lanes: commits from GitHub or a clone, and their wheels for this machine."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from nightly.hosts_made import MadeHosts, made_hosts_fixture, sha  # noqa: F401 - a fixture
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.nightly import commits, hosts as nightly_hosts, row, wheels
from pytest_vllm_gates.nightly.types import LABEL, Commit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the machine by one of a fixed kind."""
    here = frozenset({"manylinux_2_17_x86_64", "manylinux_2_28_x86_64", "linux_x86_64"})
    monkeypatch.setattr(wheels, "_here", lambda: here)


def test_commits_without_a_wheel_for_this_machine_are_gaps(made_hosts: MadeHosts) -> None:
    for number in (2, 3, 6):
        made_hosts.wheel(number)
    made_hosts.wheel(4, machine="manylinux_2_28_aarch64")
    said: list[str] = []
    found = row.between("v0.31.0", "v0.32.0", made_hosts.hosts, said.append)
    assert [each.sha for each in found.commits] == [sha(number) for number in range(1, 9)]
    assert not found.newer_good
    labels = {number: sha(number)[:LABEL] for number in range(10)}
    assert found.available == (labels[2], labels[3], labels[6])
    assert found.missing == (
        (labels[1],), (), (labels[4], labels[5]), (labels[7], labels[8])
    )  # fmt: skip
    third = found.commit(labels[3])
    assert third == Commit(sha(3), "2026-07-04", "[Kernel] Change number 3 (#40003)")
    assert said[-1] == "wheels of 8 of 8 commits looked up"


def test_good_version_that_is_newer_turns_the_row_round(made_hosts: MadeHosts) -> None:
    made_hosts.wheel(2)
    found = row.between("v0.32.0", "v0.31.0", made_hosts.hosts)
    assert found.newer_good
    assert [each.sha for each in found.commits] == [sha(number) for number in range(8, 0, -1)]


def test_hashes_are_ends_as_well_as_tags(made_hosts: MadeHosts) -> None:
    made_hosts.wheel(3)
    found = row.between(sha(1), sha(4)[:9], made_hosts.hosts)
    assert [each.sha for each in found.commits] == [sha(2), sha(3)]


def test_long_comparison_is_read_page_by_page(made_hosts: MadeHosts) -> None:
    made_hosts.commits = [sha(number) for number in range(251)]
    made_hosts.tags = {"v0.31.0": 0, "v0.32.0": 250}
    listed, _ = commits.between("v0.31.0", "v0.32.0", made_hosts.hosts)
    assert [each.sha for each in listed] == made_hosts.commits[1:-1]
    assert len(made_hosts.asked) == 3


def test_clone_lists_the_same_commits_as_github(made_hosts: MadeHosts, tmp_path: Path) -> None:
    clone = tmp_path / "clone"

    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(clone), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    clone.mkdir()
    git("init", "--quiet", "--initial-branch", "main")
    for number in range(4):
        git("commit", "--quiet", "--allow-empty", "-m", f"change {number}")
    # As in vLLM's repository: a release is a branch with commits that main does not have.
    git("switch", "--quiet", "--create", "releases/v0.31.0", "HEAD~3")
    git("commit", "--quiet", "--allow-empty", "-m", "picked")
    git("tag", "v0.31.0")
    git("tag", "v0.32.0", "main")
    hosts = made_hosts.hosts.model_copy(update={"commits": str(clone)})
    listed, newer_good = commits.between("v0.31.0", "v0.32.0", hosts)
    assert [each.subject for each in listed] == ["change 1", "change 2"]
    assert listed[0].sha == git("rev-parse", "main~2").strip()
    assert not newer_good
    turned, newer_good = commits.between("v0.32.0", "v0.31.0", hosts)
    assert (turned, newer_good) == (listed[::-1], True)
    with pytest.raises(UserError, match=r"unknown revision.*\n.*fetch --tags"):
        commits.between("v0.31.0", "v0.33.0", hosts)
    with pytest.raises(UserError, match="is not a tag or a hash"):
        commits.between("v0.31.0", "--output=x", hosts)
    assert made_hosts.asked == []


def test_variant_has_its_own_list(made_hosts: MadeHosts) -> None:
    made_hosts.wheel(2)
    made_hosts.wheel(5, variant="cu129")
    hosts = made_hosts.hosts.model_copy(update={"variant": "cu129"})
    found = row.between("v0.31.0", "v0.32.0", hosts)
    (wheel,) = found.wheels.values()
    assert wheel.version == f"0.23.1rc1.dev5+g{sha(5)[:9]}.cu129"
    assert wheel.url.startswith(f"{made_hosts.address}/wheels/{sha(5)}/vllm-0.23.1rc1.dev5%2Bg")


def test_plus_of_older_lists_is_quoted(made_hosts: MadeHosts) -> None:
    made_hosts.wheel(2, quoted=False, whole=True)
    found = row.between("v0.31.0", "v0.32.0", made_hosts.hosts)
    assert wheels.size(found.wheels.values()) == sum(
        file.stat().st_size for file in made_hosts.folder.rglob("*.whl")
    )


def test_missing_wheels_are_reported_with_a_list_to_read(made_hosts: MadeHosts) -> None:
    hosts = made_hosts.hosts.model_copy(update={"variant": "cu129"})
    with pytest.raises(UserError) as caught:
        row.between("v0.31.0", "v0.32.0", hosts)
    assert (
        "none of the 8 commits between v0.31.0 and v0.32.0 has a wheel of the variant cu129"
        in str(caught.value)
    )
    assert f"{made_hosts.address}/wheels/{sha(8)}/cu129/vllm/metadata.json" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [("<html>", "not valid JSON"), ("{}", "expected a list of wheels"),
     ("[1]", "expected a wheel with package_name"),
     ('[{"package_name": "vllm", "filename": "vllm.whl", "path": "x"}]', "is not a wheel"),
     (json.dumps([{"package_name": "vllm", "path": "http://example.org/x.whl",
                   "filename": "vllm-1.0-cp38-abi3-manylinux_2_17_x86_64.whl"}]),
      "is not below http://127"),
     (json.dumps([{"package_name": "vllm", "path": "../../../../x.whl",
                   "filename": "vllm-1.0-cp38-abi3-manylinux_2_17_x86_64.whl"}]),
      "is not below http://127")],
)  # fmt: skip
def test_list_that_is_not_one_is_refused(made_hosts: MadeHosts, content: str, message: str) -> None:
    listed = made_hosts.folder / sha(2) / "vllm" / "metadata.json"
    listed.parent.mkdir(parents=True)
    listed.write_text(content)
    with pytest.raises(UserError, match=message):
        row.between("v0.31.0", "v0.32.0", made_hosts.hosts)


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, "it refuses more requests for now"), (404, "it does not know v0.31.0 or v0.32.0"),
     (500, "it answers 500")],
)  # fmt: skip
def test_comparison_that_is_refused_names_the_clone(
    made_hosts: MadeHosts, status: int, message: str
) -> None:
    made_hosts.refuses = status
    with pytest.raises(UserError, match=message) as caught:
        row.between("v0.31.0", "v0.32.0", made_hosts.hosts)
    assert "--commits vllm-commits" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"commits": 7}, "has commits = 7, not a list"),
     ({"ahead_by": "8"}, "has ahead_by = '8', not a number"),
     ({"commits": [{"sha": "x"}]}, "has a commit without 'commit'"),
     ({"commits": [{"sha": "x", "commit": {"message": "m", "committer": {"date": "d"}}}]},
      "has a commit 'x', not a hash"),
     ({"commits": []}, "8 commits are between v0.31.0 and v0.32.0, and only 0 are listed")],
)  # fmt: skip
def test_comparison_that_is_not_one_is_refused(
    made_hosts: MadeHosts,
    change: dict[str, object],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = made_hosts.comparison("v0.31.0", "v0.32.0", 1, 100)
    assert whole is not None
    spoilt = {**whole, "total_commits": 8, **change}
    monkeypatch.setattr(made_hosts, "comparison", lambda *words: spoilt)  # noqa: ARG005
    with pytest.raises(UserError, match=message):
        row.between("v0.31.0", "v0.32.0", made_hosts.hosts)


def test_host_that_cannot_be_reached_is_named(made_hosts: MadeHosts) -> None:
    hosts = made_hosts.hosts.model_copy(update={"wheels": "http://127.0.0.1:9/none"})
    with pytest.raises(UserError, match=r"http://127.0.0.1:9/none/\S+ cannot be read"):
        row.between("v0.31.0", "v0.32.0", hosts)


@pytest.mark.parametrize(
    ("version", "url", "reference"),
    [("0.32.0", None, "v0.32.0"), ("0.32.0+cu129", None, "v0.32.0"),
     ("0.23.1rc1.dev1403+g4080263bb.cu129", None, "4080263bb"),
     ("1.0", f"https://h.example/{sha(1)}/vllm-1.0-cp38-abi3-linux_x86_64.whl", sha(1))],
)  # fmt: skip
def test_lane_is_placed_by_its_wheel_or_its_version(
    version: str, url: str | None, reference: str
) -> None:
    assert row.reference(version, url, nightly_hosts.shipped()) == reference


def test_version_without_a_commit_cannot_be_placed() -> None:
    with pytest.raises(UserError, match="neither a release nor built from a commit"):
        row.reference("0.32.1.dev3", None, nightly_hosts.shipped())


def test_page_of_a_change_has_tags_and_hashes() -> None:
    hosts = nightly_hosts.shipped()
    assert hosts.change("0.31.0", "4080263bb123").endswith("/compare/v0.31.0...4080263bb123")
    with pytest.raises(UserError, match="expected an address"):
        nightly_hosts.named({"wheels": "somewhere"})
