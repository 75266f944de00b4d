"""The verdict as GitHub Markdown, for the summary of a CI job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.files import WriteError, append
from pytest_vllm_gates.report import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VARIABLE = "GITHUB_STEP_SUMMARY"
MOST_BYTES = 1_000_000
"""GitHub accepts 1 MiB for each step, and shows nothing of a longer summary."""
CELL_CHARACTERS = 300
TEXT_CHARACTERS = 4_000
MOST_ROWS = 60
BAD = ("FAIL", "BLOCKED", "MISSING", "INCONCLUSIVE", "WAIVED")
MARKS = {"PROMOTE": "✅", "REJECT": "❌", "HOLD": "⏸️", "PASS": "✅", "FAIL": "❌", "BLOCKED": "⛔",
         "MISSING": "⚪", "INCONCLUSIVE": "❔", "KNOWN": "🔶", "WAIVED": "✍️",
         "N/A": "▫️"}  # fmt: skip
SPECIAL = re.compile(r"^(?=[-+#>=])|(?<=^\d)(?=[.)] )|(?=[\\`*_{}\[\]<>|~@$#])")
"""The places that need a backslash so that Markdown does not interpret the line."""
HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ud800-\udfff]"
)


def append_step_summary(document: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Append the summary to the file that a CI job names; return a message, '' without a file.

    A file that cannot be written is reported, but does not fail the run.
    """
    path = environ.get(VARIABLE)
    if not path:
        return ""
    try:
        append(Path(path), summary(document))
    except WriteError as error:
        return f"summary: not written to {path} (${VARIABLE}): {error.strerror}"
    return f"summary: {path}"


def summary(document: Mapping[str, Any]) -> str:
    """Return the summary, cut to the size that GitHub shows."""
    blocks = [
        _head(document),
        _bundle(document.get("bundle"), _lanes(document)),
        _checks(document.get("against"), _lanes(document)),
        _waivers(document.get("waivers") or ()),
        *(_family(family) for family in document["families"]),
        *_failures(document),
    ]
    note = "\n_The rest is in verdict.json and report.html._\n"
    room = MOST_BYTES - len(note.encode())
    text = ""
    for block in filter(None, blocks):
        room -= len(block.encode()) + 1
        if room < 0:
            return text + note
        text += block + "\n"
    return text


def _head(document: Mapping[str, Any]) -> str:
    promotion, against = document["promotion"], document.get("against")
    of = inline(document["lane"]["name"])
    if against:
        of += f" against {inline(against['lane']['name'])}"
    lines = [
        f"## {MARKS[promotion]} {promotion}: {of}",
        "",
        inline(terminal.sentence(document)),
        "",
        *(f"- {inline(reason)}" for reason in _few(terminal.reasons(document["reasons"]))),
        *(f"- {inline(line)}" for line in _few(document.get("notes") or [])),
    ]
    if commands := document.get("next"):
        lines += ["", "To get PROMOTE, run:", "", _code("\n".join(_few(commands)))]
    if rollback := document.get("rollback"):
        lines += ["", f"Go back to {inline(rollback['lane'])}:", "", _code(rollback["command"])]
    return "\n".join([*lines, ""])


def _lanes(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of the judged lane and of the other one."""
    against = document.get("against")
    return document["lane"]["name"], against["lane"]["name"] if against else "the other lane"


def _bundle(bundle: Mapping[str, Any] | None, lanes: tuple[str, str]) -> str:
    if not bundle:
        return ""
    lines = ["### Changes between the lanes", ""]
    if bundle["warning"]:
        lines += [f"> ⚠️ {inline(bundle['warning'])}", ""]
    if not bundle["changed"]:
        return "\n".join([*lines, "No compared value differs.", ""])
    rows = [
        (change["axis"], change["name"], _value(change["ours"]), _value(change["theirs"]))
        for change in bundle["changed"]
    ]
    lines += [*_table(("axis", "what", *lanes), rows), ""]
    if unknown := bundle.get("unknown"):
        reasons = [f"- {inline(reason)}" for reason in _few(bundle.get("why") or [])]
        lines += [f"Not known: {inline(', '.join(unknown))}.", "", *reasons, ""]
    return "\n".join(lines)


def _checks(against: Mapping[str, Any] | None, lanes: tuple[str, str]) -> str:
    if not against or not against["checks"]:
        return ""
    rows = [
        (check["kind"], f"{check['family']}: {check['gate']}: {check['test']}",
         check["ours"] or "not run", check["theirs"] or "not run")
        for check in against["checks"]
    ]  # fmt: skip
    table = _table(("kind", "check", *lanes), rows)
    return "\n".join(["### Side by side", "", *table, ""])


def _waivers(waivers: Sequence[Mapping[str, Any]]) -> str:
    if not waivers:
        return ""
    rows = [
        (waiver["state"], waiver["check"], waiver["until"], waiver["who"], waiver["why"])
        for waiver in waivers
    ]
    table = _table(("state", "check", "until", "who", "why"), rows)
    return "\n".join(["### Waivers", "", *table, ""])


def _family(family: Mapping[str, Any]) -> str:
    title = f"### {inline(family['name'])}, checkpoint {inline(family['checkpoint']['name'])}"
    rows = [
        (
            gate["gate"],
            f"{MARKS.get(gate['outcome'], '')} {gate['outcome']}",
            terminal.counted(test["outcome"] for test in gate["tests"]),
            f"{gate['duration_s']:.1f} s",
            gate["reason"].strip().partition("\n")[0],
        )
        for gate in family["gates"]
    ]
    if not rows:
        return f"{title}\n\nNo gate ran.\n"
    return "\n".join([title, "", *_table(("gate", "outcome", "tests", "time", "says"), rows), ""])


def _failures(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tests that did not pass, the worst first; similar ones are joined."""
    for outcome in BAD:
        alike: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for family in document["families"]:
            for gate in family["gates"]:
                where = f"{family['name']}: {gate['gate']}"
                for test in gate["tests"]:
                    if test["outcome"] == outcome:
                        alike.setdefault((where, test["reason"]), []).append(test)
        for (where, reason), tests in alike.items():
            more = f" and {len(tests) - 1} more alike" if len(tests) > 1 else ""
            title = f"{MARKS[outcome]} {outcome} {where}: {tests[0]['test']}{more}"
            lines = ["<details><summary>" + _html(_cut(title, CELL_CHARACTERS)) + "</summary>", ""]
            lines += [_code(terminal.for_readers(reason)[0])] if reason else []
            if command := tests[0].get("reproduce"):
                lines += ["", "Run it again:", "", _code(command)]
            yield "\n".join([*lines, "", "</details>", ""])


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(inline(name) for name in names) + " |"
    yield "|" + " --- |" * len(names)
    for row in rows[:MOST_ROWS]:
        yield "| " + " | ".join(inline(cell) for cell in row) + " |"
    if len(rows) > MOST_ROWS:
        yield f"| … | {len(rows) - MOST_ROWS} more |" + " |" * (len(names) - 2)


def _few(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MOST_ROWS
    return [*lines[:MOST_ROWS], *([f"and {more} more"] if more > 0 else [])]


def inline(text: str) -> str:
    """Return text for a line or a cell: one line, with all Markdown escaped."""
    one_line = " ".join(_cut(text, CELL_CHARACTERS).split())
    return SPECIAL.sub(r"\\", _visible(one_line)).replace("&", "&amp;")


def _code(text: str) -> str:
    """Return a fenced block whose fence is longer than any in the text."""
    visible = _visible(_cut(text.strip("\n"), TEXT_CHARACTERS))
    longest = max((len(run) for run in re.findall(r"`+", visible)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible}\n{fence}"


def _html(text: str) -> str:
    visible = _visible(" ".join(text.split()))
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        visible = visible.replace(sign, name)
    return visible.replace("@", "&#64;")


def _visible(text: str) -> str:
    """Return text in which characters that are invisible or reverse text are spelled out."""
    return HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} characters more)"


def _value(value: Any) -> str:
    return "\N{EN DASH}" if value is None else str(value)
