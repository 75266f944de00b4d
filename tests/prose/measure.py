"""Print the shares of hard sentences: `python tests/prose/measure.py [--offenders] PATH...`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from prose import rules, sentences


def files(paths: list[Path]) -> list[Path]:
    """Return the files themselves, and those of folders, of the kinds that are read."""
    found = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [one for one in inside if one.suffix in sentences.READERS]
    return found


def main() -> None:
    """Print a line for each file, and with --offenders each sentence that breaks a rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offenders", action="store_true")
    parser.add_argument("paths", nargs="+", type=Path)
    given = parser.parse_args()
    together: list[sentences.Sentence] = []
    for path in files(given.paths):
        its = sentences.of(path)
        together += its
        if given.offenders:
            for line, text in its:
                if word := rules.banned(text):
                    print(f"{path}:{line}: [{word}] {text}")
                if rules.relative(text):
                    print(f"{path}:{line}: [relative] {text}")
        else:
            print(_row(str(path), rules.shares(its)))
    print(_row("together", rules.shares(together)))


def _row(name: str, shares: rules.Shares) -> str:
    return (
        f"{name:60} {shares.sentences:6} sentences, banned {shares.banned:6.1%}, "
        f"relative {shares.relative:6.1%}, instructing {shares.instructing:6.1%}"
    )


if __name__ == "__main__":
    main()
