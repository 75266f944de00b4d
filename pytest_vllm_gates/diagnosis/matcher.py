"""Reads a log once, block by block, and keeps the matches of each signature.

The memory does not grow with the log: each signature keeps its first line and a count, and the
number of kept errors is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pytest_vllm_gates.diagnosis import marks
from pytest_vllm_gates.diagnosis.conditions import Hit, MatchConditions
from pytest_vllm_gates.diagnosis.course import Course
from pytest_vllm_gates.diagnosis.settings import Settings
from pytest_vllm_gates.diagnosis.sieve import Candidate, Reader, Sieve
from pytest_vllm_gates.server.log_line import free

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.diagnosis.signature import Signature, SignatureClass

MAX_ERRORS = 100
MAX_LINES = 1000
"""Lines that a pattern may match before further ones are ignored."""
MAX_CHAINS = 1000
MAX_PROCESSES = 64
MAX_TEXTS = 8
SAME_BLOCK = 60
"""Lines after the first one in which a later line may fill its missing captures."""
ERROR_BEFORE, ERROR_AFTER = 4, 2
BANNER_LINES = 20
LAST_LINES = 12


@dataclass
class SignatureMatch:
    """The matches of a signature in one boot: the first line, and additions by further lines."""

    signature: Signature
    boot: int
    first: Hit
    last: int
    times: int = 1
    captures: dict[str, str] = field(default_factory=dict)
    processes: dict[str, None] = field(default_factory=dict)
    patterns: set[int] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    """Its lines, up to the number of errors that are kept."""
    texts: dict[str, None] = field(default_factory=dict)
    """The texts of its first lines."""
    nodes: dict[str, None] = field(default_factory=dict)
    loud: bool = False
    """Whether one of its lines is more than a warning."""

    def add(self, hit: Hit) -> None:
        """Add one more line."""
        if hit.number < self.first.number:
            self.first = hit
        if hit.number - self.first.number <= SAME_BLOCK:
            self.captures = {**hit.captures, **self.captures}
        # Several of its patterns may match one line.
        self.times += hit.number != self.last
        self.last = max(self.last, hit.number)
        self.note(hit)

    def note(self, hit: Hit) -> None:
        """Remember the process that printed it, and the pattern that matched."""
        if hit.process and len(self.processes) < MAX_PROCESSES:
            self.processes[hit.process] = None
        if len(self.texts) < MAX_TEXTS:
            self.texts[hit.text] = None
        if hit.node and len(self.nodes) < MAX_PROCESSES:
            self.nodes[hit.node] = None
        self.patterns.add(hit.pattern)
        self.loud = self.loud or not hit.warns
        if len(self.numbers) < MAX_ERRORS:
            self.numbers.add(hit.number)


@dataclass(frozen=True)
class Error:
    """A line that reports an error, with the lines around it."""

    number: int
    boot: int
    excerpt: tuple[str, ...]
    text: str


class PatternTable:
    """Every pattern of some signatures, and the purpose of each."""

    def __init__(self, classes: Iterable[SignatureClass]) -> None:
        self.classes = {
            signature.id: class_.name for class_ in classes for signature in class_.signatures
        }
        self.signatures = tuple(signature for class_ in classes for signature in class_.signatures)
        places: dict[str, int] = {}
        for pattern in marks.MARKS:
            places.setdefault(pattern, len(places))
        self.matching: dict[int, list[Signature]] = {}
        for signature in self.signatures:
            conditions = signature.when
            for pattern in (
                *conditions.after,
                *conditions.not_after,
                *conditions.near,
                *conditions.not_near,
            ):
                places.setdefault(pattern, len(places))
            for pattern in signature.patterns:
                place = places.setdefault(pattern, len(places))
                self.matching.setdefault(place, []).append(signature)
        self.places = places
        before, nearby = set[int](), set[int]()
        for conditions in (signature.when for signature in self.signatures):
            before.update(places[pattern] for pattern in (*conditions.after, *conditions.not_after))
            nearby.update(places[pattern] for pattern in (*conditions.near, *conditions.not_near))
        marked = {places[mark] for mark in marks.MARKS}
        self.once = frozenset(before - marked - self.matching.keys())
        """Patterns for which it is enough that an earlier line matches."""
        self.nearby = frozenset(nearby - marked - self.matching.keys())
        """Patterns that are of interest while a match waits for what follows it."""
        self.only_matching = frozenset(self.matching.keys() - before - nearby - marked)
        self.sieve = Sieve(tuple(places))


class Matcher:
    """One reading of one log: `feed` it whole lines, then read what it kept."""

    def __init__(self, table: PatternTable, exit_status: int | None = None) -> None:
        self.table = table
        self.exit_status = exit_status
        self.seen: dict[tuple[int, str], SignatureMatch] = {}
        self.errors: list[Error] = []
        self.chains: list[int] = []
        self.course = Course()
        self.settings = Settings()
        self.device_rules: set[str] = set()
        """Rules about the GPU that the log itself shows to be met."""
        self.boot = 0
        self._ended = False
        self._dead = False
        """Whether a process reported that its engine is gone."""
        self._banner = 0
        self._first_line = 1
        """The first line of this boot; conditions do not look further back."""
        self._conditions = MatchConditions(table.places, exit_status)
        self._reader = Reader(table.sieve)
        self._known: set[int] = set()
        """Patterns whose further lines would add nothing."""
        self._lines: dict[int, int] = {}
        """The number of lines that each pattern matched."""
        self._waited = False
        self._noted: set[int] = set()
        self._ignore()
        self._last_block = b""

    @property
    def lines(self) -> int:
        """Lines read so far."""
        return self._reader.lines

    def feed(self, block: bytes) -> None:
        """Read a block of whole lines."""
        before = self._reader.lines
        for candidate in self._reader.candidates(block):
            self._look_at(candidate)
        self.course.note_answers(block, before, self.boot, self._first_line)
        self._last_block = (self._last_block + block)[-100_000:] if len(block) < 10_000 else block  # noqa: PLR2004

    def finish(self) -> None:
        """Settle the matches that waited for lines which did not come."""
        for signature, hit, boot in self._conditions.settle():
            self._accept(signature, hit, boot)

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines of the log."""
        lines = self._last_block.decode("utf-8", "replace").replace("\r", "\n").split("\n")
        texts = list(dict.fromkeys(free(line).text for line in lines[-10 * LAST_LINES :]))
        return tuple([line for line in texts if line.strip()][-LAST_LINES:])

    def _look_at(self, candidate: Candidate) -> None:
        text = candidate.line.text
        matches = {
            place: match
            for place in candidate.patterns
            if (match := self.table.sieve.patterns[place].search(text))
        }
        if not matches or marks.QUOTES.match(text):
            return
        if marks.is_code(candidate.line, candidate.above(marks.FRAME_LINES)):
            return
        number = candidate.number
        for signature, hit, boot in self._conditions.note(number, matches):
            self._accept(signature, hit, boot)
        for place, match in matches.items():
            for signature in self.table.matching.get(place, ()):
                captures = {
                    name: value.strip() for name, value in match.groupdict().items() if value
                }
                hit = Hit(
                    number, text.strip(), candidate.line.level, candidate.line.process,
                    captures, place, marks.warns(candidate.line), candidate.line.node,
                )  # fmt: skip
                lines = min(signature.when.within, number - self._first_line)
                window = candidate.window(lines)
                is_near = partial(self.table.sieve.matches, window=window)
                if self._conditions.met(signature, hit, self.boot, is_near):
                    self._accept(signature, hit, self.boot)
        self._conditions.passed(matches)
        self._attend(matches)
        self._mark(candidate, matches)

    def _attend(self, places: Iterable[int]) -> None:
        """Choose the patterns that are of interest from here on."""
        for place in places:
            self._lines[place] = self._lines.get(place, 0) + 1
            once = place in self.table.once
            if once or (self._lines[place] >= MAX_LINES and place in self.table.only_matching):
                self._known.add(place)
        if self._waited != self._conditions.wait or not self._known <= self._noted:
            self._ignore()

    def _begin(self, number: int) -> None:
        """Begin another boot: the following lines belong to it."""
        for signature, hit, boot in self._conditions.settle():
            self._accept(signature, hit, boot)
        self.boot += 1
        self._first_line = number
        self._ended = self._dead = False
        self._conditions.begin()
        self._known -= self.table.once
        self._ignore()

    def _ignore(self) -> None:
        """Pass the reader the patterns that are not of interest now."""
        self._waited, self._noted = self._conditions.wait, set(self._known)
        if self._waited:
            self._reader.ignore(self._known - self.table.nearby)
        else:
            self._reader.ignore(self._known | (self.table.nearby - self.table.once))

    def _mark_boot(self, candidate: Candidate, matched: Iterable[int]) -> None:
        """Note what a line reports about the progress of its boot, or of a new one."""
        places, number = self.table.places, candidate.number
        if places[marks.LOADING] in matched and marks.ENGINE.search(candidate.line.text):
            # If the banner is cut off, the engine's first line begins another boot.
            ready = self.course.of(self.boot).ready
            if self._dead or (ready and ready < number - BANNER_LINES):
                self._begin(number)
        if places[marks.BANNER] in matched:
            # A killed server prints no last line; one banner has several lines.
            if self._ended or 0 < self._banner < number - BANNER_LINES:
                self._begin(number)
            self._banner = number
            self.settings.read(candidate.line.text)
            self.course.of(self.boot).begin(number)
        if places[marks.SHUTDOWN] in matched:
            self.course.of(self.boot).ask_to_end(number)
            self._ended = True
        if places[marks.READY] in matched:
            self.course.of(self.boot).become_ready(number)
        if places[marks.LOADING] in matched:
            self.course.of(self.boot).load(number, candidate.line.text.strip())

    def _mark(self, candidate: Candidate, matched: Iterable[int]) -> None:
        self._mark_boot(candidate, matched)
        if self.table.places[marks.DEVICE] in matched:
            spark = marks.SPARK.search(candidate.line.text)
            self.device_rules |= {"sm_12x", "spark"} if spark else {"sm_12x"}
        places, number = self.table.places, candidate.number
        if places[marks.CHAIN] in matched and len(self.chains) < MAX_CHAINS:
            self.chains.append(number)
        if (
            places[marks.ERROR] in matched
            and marks.tells_an_error(candidate.line)
            and not self.course.of(self.boot).asked_to_end
        ):
            above = reversed(list(candidate.above(ERROR_BEFORE)))
            around = [*above, candidate.line, *candidate.after(ERROR_AFTER)]
            lines = dict.fromkeys(pair.text.rstrip() for pair in around if pair.text.strip())
            self.errors.append(Error(number, self.boot, tuple(lines), candidate.line.text.strip()))
            if len(self.errors) == MAX_ERRORS:
                self._known.add(places[marks.ERROR])
                self._ignore()

    def _accept(self, signature: Signature, hit: Hit, boot: int) -> None:
        if signature.kind == "wrapper" and self.course.of(boot).asked_to_end:
            return
        key = (boot, signature.id)
        if key in self.seen:
            self.seen[key].add(hit)
        else:
            self.seen[key] = SignatureMatch(signature, boot, hit, hit.number, captures=hit.captures)
            self.seen[key].note(hit)
        self._dead = self._dead or signature.kind == "wrapper"
        if signature.kind == "failure" and signature.phase != "client" and not hit.warns:
            self._ended = True
        self._ended = self._ended or self._dead
