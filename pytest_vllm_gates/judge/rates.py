"""Is a share of valid answers lower than the recorded one, by more than chance?"""

from __future__ import annotations

import math
import re
from math import comb

from pytest_vllm_gates.goldens import settings_golden

LEAST_CHANCE = 0.001
"""A run fails when what it saw has a smaller chance than this under the recorded rate."""
LAID_OUT = re.compile(r"^(valid|of) = (\d+)$", re.MULTILINE)


def chance_of_fewer(valid: int, of: int, valid_before: int, of_before: int) -> float:
    """Return the chance of `valid` or fewer of `of` when both rates are in truth the same.

    Fisher's exact test, one-sided: given how many of all answers were valid, the number among the
    later ones is hypergeometric (R. A. Fisher, "On the interpretation of chi-squared from
    contingency tables", 1922).
    """
    total, total_valid = of + of_before, valid + valid_before
    ways = comb(total, of)
    fewest = max(0, of - (total - total_valid))
    cases = (
        comb(total_valid, some) * comb(total - total_valid, of - some)
        for some in range(fewest, valid + 1)
    )
    return sum(cases) / ways


def interval(times: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the rates that `times` of `of` speaks for, at 95 % confidence unless `z` says else.

    Wilson's score interval (E. B. Wilson, "Probable inference, the law of succession, and
    statistical inference", 1927): unlike the usual one it holds for few tries and for rates near 0
    and 1.
    """
    rate, more = times / of, z * z / of
    middle = rate + more / 2
    reach = z * math.sqrt(rate * (1 - rate) / of + more / (4 * of))
    low, high = ((middle + sign * reach) / (1 + more) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def laid_out(valid: int, of: int) -> str:
    """Return a rate as a golden's text."""
    return settings_golden("sampled answers that were valid tool calls", {"valid": valid, "of": of})


def read(text: str) -> tuple[int, int]:
    """Return (valid, of) from a golden's text; raises `ValueError` when it holds none."""
    found = {name: int(count) for name, count in LAID_OUT.findall(text)}
    if found.keys() != {"valid", "of"} or found["valid"] > found["of"]:
        raise ValueError(f"no rate such as 'valid = 20' and 'of = 20' in {text!r}")
    return found["valid"], found["of"]
