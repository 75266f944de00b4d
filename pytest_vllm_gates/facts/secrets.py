"""Which names speak of a secret: their values are never written anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
# A user and password, or a token, before the host of a URL.
IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
REDACTED = "[redacted]"


def redacted(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with every value that may be a secret replaced."""
    return {
        name: REDACTED if SECRET_NAME.search(name) else IN_URL.sub(REDACTED, value)
        for name, value in environment.items()
    }
