"""A pattern of a log's line whose one group is a value."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator


def _one_group(pattern: str) -> str:
    if re.compile(pattern).groups != 1:
        raise ValueError(f"{pattern!r} must have exactly one group, the value")
    return pattern


ValuePattern = Annotated[str, AfterValidator(_one_group)]
