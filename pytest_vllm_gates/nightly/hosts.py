"""Where wheels and commits come from: `data/nightly.toml`, unless a command names others."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.nightly.types import is_label

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = data.FOLDER / "nightly.toml"
SCHEMES = ("http", "https")


class NightlyHosts(toml.Record):
    """The hosts of wheels by commit."""

    wheels: str
    """The address below which each commit has a folder."""
    commits: str
    """GitHub's API of the repository, or the folder of a clone."""
    pages: str
    """The repository's pages."""
    tag: str
    """What a release's tag is; `{version}` is the release."""
    variant: str = ""
    """The build that is wanted, such as `cu129`; empty: the default build of each commit."""

    @property
    def clone(self) -> str | None:
        """Return the folder of a clone, where commits come from one."""
        return None if urlsplit(self.commits).scheme in SCHEMES else self.commits

    def change(self, last_good: str, first_bad: str) -> str:
        """Return the page with what lies between two versions, each a release or a label."""
        ends = [
            version if is_label(version) else self.tag.format(version=version)
            for version in (last_good, first_bad)
        ]
        return f"{self.pages}/compare/{'...'.join(ends)}"


@cache
def shipped() -> NightlyHosts:
    """Return the hosts that vLLM publishes on."""
    return toml.load(TABLE, NightlyHosts)


def named(given: Mapping[str, str | None]) -> NightlyHosts:
    """Return the hosts with those in place that a command names.

    Raises `UserError` for wheels that are not at an URL.
    """
    hosts = shipped().model_copy(
        update={name: value.rstrip("/") for name, value in given.items() if value}
    )
    if urlsplit(hosts.wheels).scheme not in SCHEMES:
        raise UserError(
            f"--wheels {hosts.wheels!r}: expected an address that begins with https:// or http://\n"
            f"vLLM's own: {shipped().wheels}"
        )
    return hosts
