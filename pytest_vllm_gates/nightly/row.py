"""The row of commits between two lanes, with the wheels that this machine can install."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.version import InvalidVersion, Version

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.nightly import commits, wheels
from pytest_vllm_gates.nightly.types import SHA, CommitRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.nightly.hosts import NightlyHosts

BUILT_FROM = re.compile(r"g([0-9a-f]{7,40})(?:\..*)?")
"""The local version part that setuptools-scm gives a wheel by commit."""


def between(
    good: str, bad: str, hosts: NightlyHosts, say: Callable[[str], None] = lambda _: None
) -> CommitRow:
    """Return the commits between two references, with their wheels for this machine.

    Raises `UserError` if none of the commits has a wheel.
    """
    say(f"looking up the commits between {good} and {bad}")
    listed, newer_good = commits.between(good, bad, hosts)
    found = wheels.of_commits(listed, hosts, say)
    if listed and not found:
        variant = f" of the variant {hosts.variant}" if hosts.variant else ""
        raise UserError(
            f"none of the {len(listed)} commits between {good} and {bad} has a wheel{variant} for "
            f"this machine\nsee one list: curl -fL {wheels.list_address(listed[-1].sha, hosts)}\n"
            "search releases only: leave out --nightly"
        )
    return CommitRow(listed, found, newer_good)


def reference(version: str, url: str | None, hosts: NightlyHosts) -> str:
    """Return the name of a lane's version in vLLM's repository: a hash or a tag.

    `url` is the wheel that the lane's lock names, if it names one. Raises `UserError` for a version
    that is neither a release nor built from a commit.
    """
    for part in reversed(urlsplit(url or "").path.split("/")):
        if SHA.fullmatch(part):
            return part
    try:
        parsed = Version(version)
    except InvalidVersion as error:
        raise UserError(f"vLLM {version!r} is not a version") from error
    if match := BUILT_FROM.fullmatch(parsed.local or ""):
        return match[1]
    if parsed.is_devrelease:
        raise UserError(
            f"vLLM {version} is neither a release nor built from a commit that its version names: "
            "--nightly cannot place it"
        )
    return hosts.tag.format(version=parsed.public)
