"""`python -m pytest_vllm_gates.options` prints the table of options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.options import table
from pytest_vllm_gates.options.record import options_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.options.record import Option


def markdown(options: Sequence[Option]) -> Iterator[str]:
    """Yield the lines of a Markdown table: name, long name, setting and help of each option."""
    yield "| option | long name | setting | meaning |"
    yield "| --- | --- | --- | --- |"
    for option in options:
        value = f" {option.metavar}" if option.metavar else ""
        optional = f"[={option.metavar}]" if option.const is not None else value
        long = f"`{option.long}`" if option.short else ""
        # An unescaped bar would end the cell.
        spelled = f"{option.name}{optional}".replace("|", "/")
        yield f"| `{spelled}` | {long} | `{option.ini}` | {option.help} |"


def main() -> None:
    """Print the table."""
    print("\n".join(markdown(options_of(table.Options))))


if __name__ == "__main__":
    main()
