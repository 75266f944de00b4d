"""The wheels of a commit in vLLM's index, and those that this machine can install.

The index is described in vLLM's docs (contributing/ci/nightly_builds) and written by
`.buildkite/scripts/generate-nightly-index.py`: a list of wheels, each with `filename` and `path`,
which is relative to the list. Lists of before December 2025 have a plain `+` in `path`; the
storage requires `%2B`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from packaging import tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.nightly import fetch
from pytest_vllm_gates.nightly.types import NightlyWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import httpx2 as httpx

    from pytest_vllm_gates.nightly.hosts import NightlyHosts
    from pytest_vllm_gates.nightly.types import Commit

PACKAGE = "vllm"
AT_ONCE = 8
MOST_WHEELS = 1000
"""The allowed length of one commit's list; real lists have two to six wheels."""


def of_commits(
    commits: Sequence[Commit], hosts: NightlyHosts, say: Callable[[str], None]
) -> Mapping[str, NightlyWheel]:
    """Return the wheel of each commit that has one for this machine, by the commit's label.

    Reads one small file for each commit, several at once. Raises `UserError` if the host cannot be
    reached or a list is invalid.
    """
    found: dict[str, NightlyWheel] = {}
    with fetch.client() as made, ThreadPoolExecutor(AT_ONCE) as pool:
        looked_up = pool.map(lambda each: of_commit(each.sha, hosts, made), commits)
        for number, (commit, wheel) in enumerate(zip(commits, looked_up, strict=True), start=1):
            say(f"wheels of {number} of {len(commits)} commits looked up")
            if wheel is not None:
                found[commit.label] = wheel
    return found


def of_commit(sha: str, hosts: NightlyHosts, made: httpx.Client) -> NightlyWheel | None:
    """Return a commit's wheel for this machine; None without one. Raises as `of_commits`."""
    address = list_address(sha, hosts)
    advice = f"try it: curl -fL {address}\nfor another host: --wheels URL"
    try:
        document = fetch.json(made, address, advice=advice)
    except fetch.RefusedError as error:
        if error.status in fetch.MISSING:
            return None
        raise UserError(f"{address} cannot be read: {error}\n{advice}") from error
    return chosen(document, sha, address, hosts)


def list_address(sha: str, hosts: NightlyHosts) -> str:
    """Return the address of the list of a commit's wheels."""
    return "/".join(part for part in (hosts.wheels, sha, hosts.variant, PACKAGE, "metadata.json")
                    if part)  # fmt: skip


def chosen(document: Any, sha: str, address: str, hosts: NightlyHosts) -> NightlyWheel | None:
    """Return the wheel of a list that this machine can install; None if there is none.

    Raises `UserError` if it is not a list of wheels, and for a wheel at another host.
    """
    if not isinstance(document, list) or len(document) > MOST_WHEELS:
        raise UserError(f"{address}: expected a list of wheels, got {excerpt(document)}")
    for entry in document:
        package, filename, path = _named(entry, address)
        try:
            _, version, _, built_for = parse_wheel_filename(filename)
        except InvalidWheelFilename as error:
            raise UserError(f"{address}: {excerpt(filename)} is not a wheel: {error}") from error
        if package != PACKAGE or not _here() & {tag.platform for tag in built_for}:
            continue
        url = urljoin(address, quote(path, safe=":%/"))
        if not url.startswith(f"{hosts.wheels}/"):
            raise UserError(f"{address}: the wheel at {excerpt(url)} is not below {hosts.wheels}")
        return NightlyWheel(sha, str(version), url)
    return None


def _named(entry: Any, address: str) -> tuple[str, str, str]:
    """Return the package, the file name and the path of an entry of a list."""
    if isinstance(entry, dict):
        names = [entry.get(key) for key in ("package_name", "filename", "path")]
        package, filename, path = (name if isinstance(name, str) else "" for name in names)
        if package and filename and path:
            return package, filename, path
    raise UserError(
        f"{address}: expected a wheel with package_name, filename and path, got {excerpt(entry)}"
    )


def size(wheels: Iterable[NightlyWheel]) -> int | None:
    """Return the bytes of the first wheel, for a plan; None if the host does not report them."""
    first = next(iter(wheels), None)
    if first is None:
        return None
    with fetch.client() as made:
        return fetch.size(made, first.url)


@cache
def _here() -> frozenset[str]:
    """Return the platforms whose wheels this machine can install."""
    return frozenset(tags.platform_tags())
