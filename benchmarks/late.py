"""Measures how soon the gate finds a real server that answers wrongly from its 257th chat on.

    python benchmarks/late.py [--runs 20] [--requests 2000]

Boots a miniature once, behind a middleware that swaps the answers of every third question after 256
chats (tests/faults/wearing_app.py). Each run sends requests as with `--endurance`, until the gate
is sure or all requests are sent. Then the same number of requests follows without the fault. Prints
a line for each run and a summary; exits 1 if a run does not find the fault within 15 minutes, names
a request before the fault or more than 64 after the first wrong known answer, or reports a fault
that does not exist. Between the fault and that answer are questions that the fault leaves alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from e2e.served import Served

from pytest_vllm_gates.catalog import conversation, family as families
from pytest_vllm_gates.client import http, questions
from pytest_vllm_gates.endurance import checks, known, types
from pytest_vllm_gates.endurance.run import EnduranceTarget
from pytest_vllm_gates.endurance.types import CANARY

if TYPE_CHECKING:
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.endurance.types import EnduranceResult

FAMILY = "qwen3.5"
ROOT = Path(__file__).parents[1]
WEARING = {
    "env": {"PYTHONPATH": str(ROOT / "tests" / "faults")},
    "serve": {"middleware": "wearing_app.Wearing"},
}
RIGHT = 256
MOST_S = 900.0
MOST_LATER = 64
CONCURRENCY, CONTEXT = 8, 4096
ANSWER_TOKENS, ANSWER_S = 512, 120.0


def canaries_asked() -> dict[str, dict[str, Any]]:
    """Return the requests whose first answers are recorded, by name."""
    family = families.load(FAMILY, ROOT)
    return known.asked(family, questions.load(), conversation.load_all(ROOT), (), ANSWER_TOKENS)


def held(endpoint: Endpoint, way: str, requests: int) -> EnduranceResult:
    """Send requests to a server that wears out in some way, from its first chat on."""
    http.post(endpoint, f"/wear?{way}", {}).raise_for_status()
    family = families.load(FAMILY, ROOT)
    plan = questions.load()
    return EnduranceTarget(
        endpoint=endpoint,
        family=family,
        plan=types.load(),
        questions=plan,
        canaries=canaries_asked(),
        metrics=None,
        concurrency=CONCURRENCY,
        context=CONTEXT,
        answer_s=ANSWER_S,
        invariant=False,
        most_requests=requests,
        most_s=None,
    ).hold()


def main() -> int:
    """Boot the server and run both kinds of runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    found: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        served = Served(FAMILY, Path(folder), lambda _: None, WEARING)
        try:
            plan = types.load()
            earliest = RIGHT - len(canaries_asked()) - RIGHT // plan.leave_every - CONCURRENCY
            for run in range(1, options.runs + 1):
                result = held(served.endpoint, "forgets", options.requests)
                wrong, _ = checks.canaries(result, plan)
                canaries = result.of(CANARY)
                since = canaries[checks.change_point(canaries, plan.tolerated)].number
                first = next((each.number for each in canaries if each.fault), 0)
                asked = len(result.requests)
                print(
                    f"run {run}: {wrong.partition(';')[0] or 'not found'}; the first wrong one is "
                    f"request {first}; {asked} requests in {result.took_s:.0f} s",
                    flush=True,
                )
                # First and repeated questions are chats, too: the fault begins before request 257.
                right = earliest <= first <= since <= first + MOST_LATER
                if wrong and right and result.took_s <= MOST_S:
                    found.append((since, result.took_s))
            clean = held(served.endpoint, "", options.requests)
        finally:
            served.stop()
    wrong, doubt = checks.canaries(clean, plan)
    others, _ = checks.others(clean)
    print(
        f"right: {len(clean.requests)} requests, {len(clean.of(CANARY))} canaries in "
        f"{clean.took_s:.0f} s, {int(bool(wrong or doubt)) + len(others)} findings (none may be)"
    )
    slowest = max((took for _, took in found), default=0.0)
    since_median = statistics.median([since for since, _ in found]) if found else 0
    print(
        f"wrong from chat 257 on: found in {len(found)} of {options.runs} runs (all), named since "
        f"request {since_median:.0f} (median, at most {MOST_LATER} after the first wrong one), "
        f"after at most {slowest:.0f} s (at most {MOST_S:.0f})"
    )
    return int(len(found) < options.runs or bool(wrong or doubt or others))


if __name__ == "__main__":
    sys.exit(main())
