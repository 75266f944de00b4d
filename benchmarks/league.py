"""How many real faults each contestant finds, and how often it alarms on a healthy server.

    python benchmarks/league.py --results FILE --servers qwen3.5 --per-kind 2
    python benchmarks/league.py --results FILE --references FILE --record 7 --clean 3
    python benchmarks/league.py --results FILE --table

Contestants look at the same faulty server as this suite: `tests/faults` runs with a plugin that
lets them look after the gates of each test. One server runs at a time. Each fault appends a line to
the results when its test ends; a fault in the results is not played again. `--record` notes the
answers and the speed of clean boots; `--clean` judges other clean boots and counts alarms, minutes
and tokens; `--table` writes docs/league.md from the results.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from figures import commit  # type: ignore[import-not-found, unused-ignore]

from benchmarks.contest import clean, faults, looking, page, play
from benchmarks.contest.types import Reference
from pytest_vllm_gates.files import write_whole

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
PAGE = HERE.parent / "docs" / "league.md"
MODEL = "qwen3.5"


def words(text: str) -> list[str]:
    """Return the parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def main() -> int:
    """Play what is named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, default=RECORDED / "league.jsonl")
    parser.add_argument("--references", type=Path, default=RECORDED / "league_references.json")
    parser.add_argument("--servers", type=words, default=[], help=", ".join(faults.SERVERS))
    parser.add_argument("--kinds", type=words, default=[], help=", ".join(faults.CLASSES))
    parser.add_argument("--per-kind", type=int, help="the most faults of a class; all without")
    parser.add_argument("--record", type=int, default=0, metavar="N", help="clean boots to record")
    parser.add_argument("--clean", type=int, default=0, metavar="N", help="clean boots to judge")
    parser.add_argument("--model", default=MODEL, help="the family of --record and --clean")
    parser.add_argument("--table", action="store_true", help="write docs/league.md")
    options = parser.parse_args()
    known = {*faults.CLASSES, faults.HARMLESS}
    if unknown := [name for name in options.kinds if name not in known]:
        parser.error(f"no class {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    if unknown := [name for name in options.servers if name not in faults.SERVERS]:
        parser.error(f"no server {', '.join(unknown)}; there are {', '.join(faults.SERVERS)}")
    if options.record:
        clean.record_references(options.references, options.model, options.record)
    for server in options.servers:
        status = play.play(
            options.results,
            options.references,
            server,
            kinds=options.kinds,
            per_kind=options.per_kind,
            commit=commit(),
        )
        print(f"{server}: pytest ended with {status}", flush=True)
    for number in range(options.clean):
        reference = looking.recorded(options.references, options.model) or Reference()
        at = datetime.now(UTC).isoformat(timespec="seconds")
        line = clean.judge(options.model, reference, commit(), at)
        play.append(options.results, line)
        alarms = [name for name, one in line["looks"].items() if one["found"]]
        print(f"clean server {number + 1}: alarms {', '.join(alarms) or 'none'}", flush=True)
    if options.table:
        clean_boots = looking.recorded(options.references, options.model) or Reference()
        lines = play.read(options.results)
        write_whole(PAGE, page.page(lines, options.results, clean_boots.speeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
