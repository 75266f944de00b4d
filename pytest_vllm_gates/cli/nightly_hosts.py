"""The options of commands that read vLLM's wheels by commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.nightly import hosts as nightly_hosts

if TYPE_CHECKING:
    import argparse

    from pytest_vllm_gates.nightly.hosts import NightlyHosts


def declare(parser: argparse.ArgumentParser, *, commits: bool) -> None:
    """Add the options for wheels, and for commits if the command lists them."""
    parser.add_argument(
        "--wheels", metavar="URL", help="the host of wheels by commit (default: vLLM's own)"
    )
    parser.add_argument(
        "--variant", metavar="NAME",
        help="the build of the wheels, such as cu129 (default: each commit's own)",
    )  # fmt: skip
    if commits:
        parser.add_argument(
            "--commits", metavar="FOLDER",
            help="a clone of vLLM that lists the commits, or the repository's address in GitHub's "
            "API (default: vLLM's own)",
        )  # fmt: skip


def of(options: argparse.Namespace) -> NightlyHosts:
    """Return the hosts, with the typed ones; raises `UserError`."""
    given = {name: getattr(options, name, None) for name in ("wheels", "variant", "commits")}
    return nightly_hosts.named(given)
