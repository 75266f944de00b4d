"""What makes a sentence hard to read: the words and beginnings that our texts avoid."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prose.sentences import Sentence

CODE = re.compile(r"`+[^`]*`+|\"[^\"]*\"|“[^”]*”")
BANNED = re.compile(
    r"\b(?:tells?|told|telling|stands?|stood|standing|holds?|held|holding|says?|said|saying"
    r"|asks?|asked|asking|speaks?|spoke|spoken|company|whoever|otherwise than|of its own"
    r"|(?:is|are|was|were) no (?!longer|more\b|less\b|later|earlier|GPU)\w+)\b"
)
"""Verbs for what a program does, and riddles. `HOLD` is an outcome, and spelled in capitals."""
LITERAL = re.compile(
    r"\b(?:standard|outstanding|understand|household|threshold|placeholder|stand-in|held-out"
    r"|hold(?:s|ing)? (?:the )?lock|lock is held)\b"
)
RELATIVE = re.compile(r"^[\W_]*(?:What|Who|Whoever|Whose|Where|Which|Whichever|Whatever|Of)\b")
QUESTION = re.compile(r"\?[\"')*]*$")
CONDITIONS = ("If", "To", "When")
INSTRUCTIONS = frozenset({
    "Add", "Allow", "Answer", "Append", "Apply", "Avoid", "Boot", "Build", "Call", "Change",
    "Check", "Choose", "Clone", "Commit", "Compare", "Configure", "Confirm", "Connect",
    "Continue", "Copy", "Count", "Create", "Cut", "Declare", "Define", "Delete", "Describe",
    "Do", "Download", "Draw", "Edit", "Enable", "End", "Expect", "Export", "Fetch", "Find",
    "Fix", "Follow", "Format", "Generate", "Get", "Give", "Go", "Group", "Include", "Install",
    "Judge", "Keep", "Label", "Leave", "Let", "List", "Load", "Look", "Make", "Mark",
    "Measure", "Mount", "Move", "Name", "Note", "Open", "Pass", "Paste", "Pick", "Pin", "Plan",
    "Point", "Prefer", "Press", "Print", "Publish", "Pull", "Push", "Put", "Quote", "Raise",
    "Read", "Rebuild", "Record", "Remove", "Rename", "Repeat", "Replace", "Report",
    "Reproduce", "Rerun", "Reset", "Restart", "Restore", "Return", "Review", "Run", "Save",
    "Search", "See", "Select", "Send", "Serve", "Set", "Share", "Show", "Skip", "Split",
    "Start", "State", "Stop", "Store", "Switch", "Take", "Test", "Train", "Treat", "Try",
    "Turn", "Type", "Undo", "Update", "Upload", "Use", "Wait", "Watch", "Write",
})  # fmt: skip


class Shares(NamedTuple):
    """How many sentences there are, and which share of them breaks each rule (0 to 1)."""

    sentences: int
    banned: float
    relative: float
    instructing: float


def banned(text: str) -> str | None:
    """Return the first banned word of a sentence, outside code and quotations."""
    found = BANNED.search(LITERAL.sub("", CODE.sub("", text)))
    return found[0] if found else None


def relative(text: str) -> bool:
    """Whether a statement begins with a relative word; a question may."""
    return bool(RELATIVE.match(text)) and not QUESTION.search(text)


def instructing(text: str) -> bool:
    """Whether a sentence begins with an instruction, or with when or why to follow one."""
    first = re.match(r"[\W_]*([A-Z][a-z]+)\b", text)
    return first is not None and (first[1] in CONDITIONS or first[1] in INSTRUCTIONS)


def shares(sentences: Iterable[Sentence]) -> Shares:
    """Measure sentences; no sentence breaks no rule."""
    counted: Counter[str] = Counter()
    for _, text in sentences:
        counted["all"] += 1
        counted["banned"] += banned(text) is not None
        counted["relative"] += relative(text)
        counted["instructing"] += instructing(text)
    whole = counted["all"] or 1
    return Shares(
        counted["all"], *(counted[name] / whole for name in ("banned", "relative", "instructing"))
    )
