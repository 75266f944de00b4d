"""The key for the hashes of prompts: one key for all runs of a user on a machine."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from filelock import FileLock

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import default_cache

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "GATES_PROMPT_KEY"
"""Set this to share one key between machines, so that their hashes are equal."""
LEAST_BYTES = 16
NAME = "prompt-key"


def prompt_key(environment: Mapping[str, str] = os.environ) -> bytes:
    """Return the key from the environment, else from the cache, where it is made at first use.

    Only its owner can read the file. Raises `UserError` for a key that is too short.
    """
    if exported := environment.get(VARIABLE):
        if len(exported) < LEAST_BYTES:
            raise UserError(
                f"{VARIABLE} has {len(exported)} characters, but needs at least {LEAST_BYTES}: "
                f"export {VARIABLE}=$(openssl rand -hex 32)"
            )
        return exported.encode()
    path = default_cache() / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists() or path.stat().st_size < LEAST_BYTES:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(32))
        return path.read_bytes()
