"""The releases of a package in pip's configured sources."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

from pytest_vllm_gates.catalog import releases
from pytest_vllm_gates.errors import UserError

LISTED = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
ASK_LIMIT_S = 120.0


@cache
def releases_of(package: str) -> tuple[str, ...]:
    """Return a package's releases in the index for this Python.

    Raises `UserError` if the index does not answer.
    """
    argv = [sys.executable, "-m", "pip", "index", "versions", package]
    try:
        answer = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=ASK_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{package}: the package index did not answer within {ASK_LIMIT_S:.0f} s\n"
            f"try it: {sys.executable} -m pip index versions {package}"
        ) from None
    if match := LISTED.search(answer.stdout):
        return tuple(version.strip() for version in match[1].split(","))
    if package in {device.package for device in releases.table().devices.values()}:
        return releases.flag_table().releases
    words = (answer.stderr.strip().splitlines() or ["it lists no versions"])[-1]
    raise UserError(
        f"{package}: the package index lists no releases: {words}\n"
        f"try it: {sys.executable} -m pip index versions {package}"
    )
