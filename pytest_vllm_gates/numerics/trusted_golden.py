"""The golden of a trusted run: heads, then a block per text, a line per list."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TITLE = "golden 1: trusted run: "
END = "end of golden"
DIGITS = 5


def written(title: str, run: ForcedRun) -> str:
    """Format a run as a golden: heads, then a block per text, a line per list."""
    lines = [
        f"{TITLE}{title}", "", f"weights {run.weights}", f"build {run.build}",
        f"machine {run.machine}",
        *(f"declared {name} {value}" for name, value in sorted(run.declared.items())),
    ]  # fmt: skip
    for text in run.texts:
        lines += ["", f"text {text.name}", f"ids {' '.join(map(str, text.ids))}"]
        lines += [f"alone {_numbers(text.alone)}", f"together {_numbers(text.together)}"]
        lines += [f"answer {' '.join(map(str, text.answer))}".rstrip()]
        lines += [f"answer_logprobs {_numbers(text.answer_logprobs)}".rstrip()]
    return "\n".join([*lines, "", END, ""])


def parsed(text: str) -> ForcedRun:
    """Read the format of `written`; raises `ValueError` for anything else."""
    heads: dict[str, str] = {}
    declared: dict[str, str] = {}
    texts: list[dict[str, str]] = []
    for line in text.splitlines()[1:-1]:
        key, _, value = line.partition(" ")
        if key == "text":
            texts.append({"name": value})
        elif key == "declared":
            name, _, declared[name] = value.partition(" ")
        elif key:
            (texts[-1] if texts else heads)[key] = value
    try:
        run = ForcedRun(
            weights=heads["weights"], build=heads["build"], machine=heads["machine"],
            declared=declared, texts=tuple(_text(entry) for entry in texts),
        )  # fmt: skip
    except KeyError as error:
        raise ValueError(f"{error} is missing") from error
    if not run.texts:
        raise ValueError("it has no text")
    return run


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.{DIGITS}f}" for value in values)


def _text(entry: Mapping[str, str]) -> ForcedText:
    def floats(key: str) -> tuple[float, ...]:
        values = tuple(float(word) for word in entry[key].split())
        if not all(map(math.isfinite, values)):
            raise ValueError(f"{key} of {entry['name']} has a number that is not valid")
        return values

    def ids(key: str) -> tuple[int, ...]:
        return tuple(int(word) for word in entry[key].split())

    text = ForcedText(
        entry["name"], ids("ids"), floats("alone"), floats("together"), ids("answer"),
        floats("answer_logprobs"),
    )  # fmt: skip
    if {len(text.alone), len(text.together)} != {len(text.ids) - 1}:
        raise ValueError(f"{text.name} has different numbers of log-probabilities and of tokens")
    if len(text.answer) != len(text.answer_logprobs):
        raise ValueError(f"the answer to {text.name} has a wrong number of log-probabilities")
    return text
