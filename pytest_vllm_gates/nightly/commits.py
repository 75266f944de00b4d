"""The commits between two versions of vLLM, from a clone or from GitHub.

GitHub's "Compare two commits" lists the commits of `git log BASE..HEAD`, the earliest first, in
pages (docs.github.com, REST API, commits, read 2026-11-26).
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.nightly import fetch
from pytest_vllm_gates.nightly.types import SHA, Commit

if TYPE_CHECKING:
    import httpx2 as httpx

    from pytest_vllm_gates.nightly.hosts import NightlyHosts

PER_PAGE = 100
MOST_COMMITS = 5000
GIT_LIMIT_S = 120.0
FIELD = "\x1f"
REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
MOST_SUBJECT = 200


def between(good: str, bad: str, hosts: NightlyHosts) -> tuple[tuple[Commit, ...], bool]:
    """Return the commits between two references, and whether the good one is newer.

    A reference is a tag or a hash. The commits go from the good one to the bad one; neither is
    included. If each has commits that the other lacks, as on two release branches, the one with
    more of them is the newer. Raises `UserError` if the commits cannot be listed.
    """
    for name in (good, bad):
        if not REFERENCE.fullmatch(name):
            raise UserError(f"{excerpt(name)} is not a tag or a hash of vLLM's repository")
    listed = _of_clone(good, bad, hosts.clone) if hosts.clone else _of_github(good, bad, hosts)
    commits, newer_good = listed
    if len(commits) > MOST_COMMITS:
        raise UserError(
            f"{len(commits)} commits are between {good} and {bad}, more than {MOST_COMMITS}: "
            "bisect between releases first, without --nightly"
        )
    inner = commits[:-1]  # the last one is the newer end
    return (inner[::-1] if newer_good else inner), newer_good


def _of_clone(good: str, bad: str, clone: str) -> tuple[tuple[Commit, ...], bool]:
    counts = _git(clone, "rev-list", "--left-right", "--count", f"{good}...{bad}").split()
    newer_good = int(counts[0]) > int(counts[1])
    older, newer = (bad, good) if newer_good else (good, bad)
    log = _git(
        clone, "log", "--reverse", "--first-parent", f"--format=%H{FIELD}%cs{FIELD}%s",
        f"{older}..{newer}",
    )  # fmt: skip
    rows = [line.split(FIELD, 2) for line in log.splitlines()]
    return tuple(
        Commit(sha, date, subject[:MOST_SUBJECT]) for sha, date, subject in rows
    ), newer_good


def _git(clone: str, *words: str) -> str:
    command = ["git", "-C", clone, *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            timeout=GIT_LIMIT_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{clone}: git does not answer: {error}") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason"])[0]
        raise UserError(
            f"{clone}: git cannot list the commits: {said}\n"
            f"check that it is a clone of vLLM with tags; try: git -C {clone} fetch --tags origin"
        )
    return done.stdout


def _of_github(good: str, bad: str, hosts: NightlyHosts) -> tuple[tuple[Commit, ...], bool]:
    with fetch.client() as made:
        first = _page(made, hosts, good, bad, 1)
        newer_good = _count(first, "behind_by") > _count(first, "ahead_by")
        older, newer = (bad, good) if newer_good else (good, bad)
        if newer_good:
            first = _page(made, hosts, older, newer, 1)
        total = _count(first, "total_commits")
        commits = _commits(first)
        page = 1
        while len(commits) < min(total, MOST_COMMITS + 1):
            page += 1
            more = _commits(_page(made, hosts, older, newer, page))
            if not more:
                raise UserError(
                    f"{hosts.commits}: {total} commits are between {older} and {newer}, and only "
                    f"{len(commits)} are listed\n{_advice(hosts)}"
                )
            commits += more
        return tuple(commits), newer_good


def _page(made: httpx.Client, hosts: NightlyHosts, base: str, head: str, page: int) -> Any:
    address = f"{hosts.commits}/compare/{base}...{head}?per_page={PER_PAGE}&page={page}"
    try:
        document = fetch.json(made, address, advice=_advice(hosts))
    except fetch.RefusedError as error:
        words = {
            404: f"it does not know {base} or {head}",
            403: "it refuses more requests for now",
            429: "it refuses more requests for now",
        }
        why = words.get(error.status, str(error))
        raise UserError(f"{hosts.commits}: {why} ({error.status})\n{_advice(hosts)}") from error
    if not isinstance(document, dict):
        raise UserError(f"{address}: expected a comparison, got {excerpt(document)}")
    return document


def _count(document: dict[str, Any], key: str) -> int:
    value = document.get(key)
    if type(value) is not int or value < 0:
        raise UserError(f"a comparison of GitHub's has {key} = {excerpt(value)}, not a number")
    return value


def _commits(document: dict[str, Any]) -> list[Commit]:
    found, entries = [], document.get("commits")
    if not isinstance(entries, list):
        raise UserError(f"a comparison of GitHub's has commits = {excerpt(entries)}, not a list")
    for entry in entries:
        try:
            sha, inner = str(entry["sha"]), entry["commit"]
            subject = str(inner["message"]).partition("\n")[0][:MOST_SUBJECT]
            date = str(inner["committer"]["date"])[:10]
        except (KeyError, TypeError, IndexError) as error:
            raise UserError(
                f"a comparison of GitHub's has a commit without {error}: {excerpt(entry)}"
            ) from error
        if not SHA.fullmatch(sha):
            raise UserError(f"a comparison of GitHub's has a commit {excerpt(sha)}, not a hash")
        found.append(Commit(sha, date, subject))
    return found


def _advice(hosts: NightlyHosts) -> str:
    return (
        f"use a clone: git clone --filter=tree:0 --no-checkout {hosts.pages} vllm-commits, then "
        "--commits vllm-commits"
    )
