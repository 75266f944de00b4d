"""The hosts of wheels and commits: `data/nightly.toml`, unless a command names others."""

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
    """The form of a release's tag; `{version}` is the release."""
    variant: str = ""
    """The requested build, for example `cu129`; empty: the default build of each commit."""

    @property
    def clone(self) -> str | None:
        """Return the folder of a clone, if commits come from one."""
        return None if urlsplit(self.commits).scheme in SCHEMES else self.commits

    def change(self, last_good: str, first_bad: str) -> str:
        """Return the page with the commits between two versions, each a release or a label."""
        ends = [
            version if is_label(version) else self.tag.format(version=version)
            for version in (last_good, first_bad)
        ]
        return f"{self.pages}/compare/{'...'.join(ends)}"


@cache
def shipped() -> NightlyHosts:
    """Return vLLM's own hosts."""
    return toml.load(TABLE, NightlyHosts)


def named(given: Mapping[str, str | None]) -> NightlyHosts:
    """Return the hosts, with those replaced that a command names.

    Raises `UserError` if the address of the wheels is not a URL.
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
