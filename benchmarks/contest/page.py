"""Writes docs/league.md from the results: what each contestant found, and what it cost."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.contest import asking, faults, gsm8k, guidellm, releases, speed, types, vendor
from pytest_vllm_gates.machine.inspect import inspect

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Line = dict[str, Any]
RIVALS = [name for name in types.TITLES if name != types.SUITE]
SHOWN_MISSES = 40
FAILED = re.compile(r"assert \{([^}]+)\} == ")


def last_of_each(lines: Iterable[Line]) -> list[Line]:
    """Return the last line of each fault: a test that was tried again has two."""
    return [*{line["id"]: line for line in lines}.values()]


def said(line: Line, contestant: str) -> bool | None:
    """Return whether a contestant called the server of a line faulty; None if it did not look."""
    if contestant == types.SUITE and "suite" in line:
        return bool(line["suite"]["found"])
    found: bool | None = line["looks"].get(contestant, {}).get("found")
    return found


def share(lines: Sequence[Line], contestant: str) -> str:
    """Return how many of the looks found something, as `found/looks`."""
    looked = [found for line in lines if (found := said(line, contestant)) is not None]
    return f"{sum(looked)}/{len(looked)}" if looked else "-"


def row(cells: Iterable[object]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |\n"


def contestants(lines: Sequence[Line]) -> list[str]:
    """Return the contestants that looked at least once, this suite first."""
    return [name for name in types.TITLES if any(said(line, name) is not None for line in lines)]


def page(lines: Sequence[Line], results: Path, history: Sequence[float] = ()) -> str:
    """Return the page; `history`: output tokens a second of the recorded clean boots."""
    played = last_of_each(line for line in lines if line["what"] == "fault")
    harmless = last_of_each(line for line in lines if line["what"] == faults.HARMLESS)
    clean = [line for line in lines if line["what"] == "clean"]
    names = contestants([*played, *clean])
    text = _head(played, results, lines)
    text += "\n## Result\n\n" + _result(names, played, harmless, clean)
    text += "\n## By class of fault\n\n" + _classes(names, played)
    text += "\n## Real defects of released vLLM\n\n" + releases.section()
    text += "\n## The contestants\n\n" + _rules(played) + _noise(history)
    text += "\n## What this suite missed\n\n" + _missed(played)
    text += "\n## Left out\n\n" + _left_out()
    return text.rstrip() + "\n"


def _head(played: Sequence[Line], results: Path, lines: Sequence[Line]) -> str:
    machine = inspect()
    days = sorted({line["at"][:10] for line in lines if "at" in line})
    commits = sorted({line["commit"] for line in lines if "commit" in line})
    span = f"{days[0]} to {days[-1]}" if len(days) > 1 else "".join(days)
    return (
        "# Detection league\n\n"
        f"{len(played)} faults of a real vLLM server: this suite, and the checks that teams use in "
        "its place, each judge the same faulty server.\n\n"
        "The faults are those of `tests/faults`: a proxy that changes the answers of a real "
        "server, a wrong flag, or a changed server. This suite finds a fault if the test of the "
        "fault passes: exactly the expected gates fail, with the expected message.\n\n"
        "Read the numbers with four limits in mind. In the run of 2026-11-28, golden answers to "
        "the faults of most classes were limited to 300 tokens and compared the errors of the "
        "clean server, too; for boot, adapters, numerics, cache, load, endurance, lifecycle, facts "
        "and images the limit was 1,024 tokens and errors were left out. The first part was not "
        "played again. "
        "This project chose the faults, and each of "
        "its gates has some. Most faults change one route, streams alone or one kind of request; "
        "a check that sends no such request cannot find them. The servers run miniatures: "
        "shares on another model may differ.\n\n"
        f"Measured {span} on {machine.cpu}, pinned to one core, with vLLM {releases.shipped()} on "
        f"the CPU lane, at commit {', '.join(commits)}. The results are in "
        f"`benchmarks/recorded/{results.name}`.\n"
    )


def _result(
    names: Sequence[str], played: Sequence[Line], harmless: Sequence[Line], clean: Sequence[Line]
) -> str:
    heads = ("faults found", "alarms, clean servers", "alarms, harmless changes")
    text = row(("contestant", *heads, "minutes", "tokens")) + row(["---"] * 6)
    for name in names:
        looks = [line["looks"][name] for line in clean if name in line["looks"]]
        looks = [look for look in looks if look["found"] is not None]
        minutes = f"{statistics.median(one['seconds'] for one in looks) / 60:.2f}" if looks else "-"
        tokens = f"{statistics.median(one['tokens'] for one in looks):,.0f}" if looks else "-"
        if name == types.GSM8K:
            minutes = tokens = "not run"
        shares = [share(lines, name) for lines in (played, clean, harmless)]
        text += row((types.TITLES[name], *shares, minutes, tokens))
    return (
        f"{text}\nEach share is found/judged; `-`: not judged. Minutes and tokens are medians over "
        f"{len(clean)} clean boots, without the boot; the server counted the tokens, prompts "
        "included. A harmless change is an answer that differs only in parts on which no client "
        "may rely: new fields, other ids, more metrics. On clean boots, this suite ran without the "
        "throughput gate, which needs a baseline of the machine.\n"
    )


def _classes(names: Sequence[str], played: Sequence[Line]) -> str:
    text = row(("class", *(types.TITLES[name] for name in names)))
    text += row(["---"] * (len(names) + 1))
    for kind in faults.CLASSES:
        of_kind = [line for line in played if line["kind"] == kind]
        if of_kind:
            text += row((kind, *(share(of_kind, name) for name in names)))
    seen = {line["kind"] for line in played} | faults.WITHOUT_SERVER.keys()
    absent = [kind for kind in faults.CLASSES if kind not in seen]
    text += row(("**all**", *(share(played, name) for name in names)))
    if absent:
        text += f"\nNot played yet: {', '.join(absent)}.\n"
    for kind, why in faults.WITHOUT_SERVER.items():
        text += f"\nNot played, {kind}: {why}.\n"
    return text


def _rules(played: Sequence[Line]) -> str:
    return (
        "- pytest-vllm-gates: the gate of the fault, as `tests/faults` runs it. If further gates "
        "fail, or the message differs, the fault counts as missed.\n"
        "- `/health`: alarms at a status other than 200.\n"
        "- smoke prompt: one chat about the capital of France; alarms unless the answer names it.\n"
        "- golden answers: the greedy answers of a clean server, recorded with the openai client: "
        "reasoning, content and tool calls of every shipped conversation of at most "
        f"{asking.LONGEST_CHARACTERS:,} characters, not streamed. Alarms at any other text.\n"
        "- vendor verifier: the two checks of "
        "[K2-Vendor-Verifier](https://github.com/MoonshotAI/K2-Vendor-Verifier), written anew "
        "after its README. Alarms if the F1 of finish_reason `tool_calls` against the clean server "
        f"is below {vendor.ACCEPTABLE_F1:.0%}, or if arguments do not fit the declared schema. The "
        "original sends 4,000 requests; here it sends the shipped conversations with tools.\n"
        f"- GSM8K (computed): the miniatures cannot solve the {gsm8k.QUESTIONS:,} questions of "
        "[its test split](https://huggingface.co/datasets/openai/gsm8k), so the task is not run. "
        "The share of plain golden answers whose last number, or last word, changed is measured. "
        f"For a model that solves {gsm8k.ASSUMED:.0%} (assumed), the standard error is "
        f"{gsm8k.standard_error():.1%}; alarms if that share of {gsm8k.ASSUMED:.0%} is more than "
        f"{gsm8k.least_loss():.1%}, two standard errors of a difference.\n"
        f"- nightly speed rule: alarms at more than two sigma and 1 % below the last "
        f"{speed.NIGHTS} nights, the rule of vLLM's nightly alarm, with clean boots as nights. It "
        f"measures output tokens a second of {speed.REQUESTS} answers, {speed.STREAMS} at "
        f"once and {speed.TOKENS} tokens each, on /v1/completions as `vllm bench serve` "
        "does by default.\n"
        "- fixed 5 % speed rule: alarms at more than 5 % below the last clean boot.\n"
        "- guidellm: judges only where its program is given; alarms at failed requests. "
        f"It sends {guidellm.REQUESTS} requests, {speed.STREAMS} at once, to the classes that the "
        "speed rules judged and to clean servers. The other classes were played with 8 requests, "
        "4 at once.\n\n"
        f"The speed rules judged {_of_speed(played)}. The proxy before the other servers remembers "
        "greedy answers, so its speed is not the server's; or other work ran beside them.\n"
    )


def _of_speed(played: Sequence[Line]) -> str:
    """Return the classes that the speed rules judged."""
    judged = {line["kind"] for line in played if said(line, types.NIGHTLY) is not None}
    return ", ".join(kind for kind in faults.CLASSES if kind in judged) or "nothing yet"


def _noise(history: Sequence[float]) -> str:
    """Return how often the fixed rule alarms from one recorded clean boot to the next."""
    pairs = list(pairwise(history))
    if not pairs:
        return ""
    alarms = sum(bool(speed.fixed(value, [before])[0]) for before, value in pairs)
    return (
        f"Read their finds beside their noise: from one to the next of the {len(history)} recorded "
        f"clean boots ({min(history):.0f} to {max(history):.0f} tokens a second on this machine), "
        f"the fixed 5 % rule alarms {alarms} of {len(pairs)} times.\n"
    )


def _missed(played: Sequence[Line]) -> str:
    missed = [line for line in played if not said(line, types.SUITE)]
    if not missed:
        return "Nothing of what was played.\n"
    text = ""
    for line in missed[:SHOWN_MISSES]:
        others = [types.TITLES[name] for name in RIVALS if said(line, name)]
        text += f"- `{line['id']}`: {_instead(line)}; found by: {', '.join(others) or 'nobody'}\n"
    return text


def _instead(line: Line) -> str:
    """Return the gates that failed in place of the expected ones, by the test's failure."""
    gates = FAILED.search(line["suite"].get("why", ""))
    return f"red, by {gates[1].replace(chr(39), '')}" if gates else "no gate with that message"


def _left_out() -> str:
    reasons = Counter(faults.NOT_PLAYED.values())
    return "".join(
        f"- {', '.join(f'`{name}`' for name, why in faults.NOT_PLAYED.items() if why == reason)}: "
        f"{reason}\n"
        for reason in reasons
    )
