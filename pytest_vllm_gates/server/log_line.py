"""One line of a server's log, without the prefixes of collectors, terminals and processes."""

from __future__ import annotations

import re
from typing import NamedTuple

from pytest_vllm_gates.bounded import syntax

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
# Prefixes that collectors put before a line, outermost first; a line may have several.
COLLECTORS = (
    # kubectl --prefix: "[pod/vllm-0/vllm] "
    re.compile(r"\[pod/(?P<node>[^\]]+)\] "),
    # journald and syslog: "Nov 20 10:00:00 host vllm[12]: "
    re.compile(
        r"(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
        rf"|{ISO.replace('[T ]', 'T')}) (?P<node>\S+) [\w./@\\-]+\[\d+\]: ?"
    ),
    # CRI: "2026-11-20T10:00:00.1Z stdout F ", and Docker's --timestamps, which ends after the time
    re.compile(ISO.replace("[T ]", "T") + r" (?:std(?:out|err) [FP] )?"),
    # Syslog of RFC 5424: "<14>1 2026-11-20T10:00:00Z host vllm 12 - - "
    re.compile(rf"<\d+>1 {ISO} \S+ \S+ \S+ \S+ (?:-|\[[^\]]*\]) "),
    # docker compose: "vllm-1  | "
    re.compile(r"[A-Za-z][\w.-]* +\| "),
)
JSON_KEYS = ("log", "message", "MESSAGE", "msg")
# As "(EngineCore_DP0 pid=12) ", "(Worker rank=1 pid=12) ", "(raylet) ", "[rank0]: ", and Ray's
# "(RayWorkerWrapper pid=12, ip=10.0.0.1) ".
PROCESS = re.compile(
    r"\[(?P<rank>rank ?\d+)\]:? ?"
    r"|\((?P<name>[A-Za-z_][\w. ]*?)? ?(?:rank=(?P<number>\d+) )?pid=\d+"
    r"(?:, ip=(?P<ip>[\w.:]+))?\) ?"
    r"|\((?P<ray>raylet|autoscaler|gcs_server)[^)]*\) "
)
LEVELS = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)"
STAMPS = (
    # vLLM: "ERROR 11-20 10:00:00 [core.py:1] ", up to 0.7 "ERROR 11-20 10:00:00 core.py:1] "
    re.compile(
        rf"{LEVELS} (?:\d{{4}}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? "
        r"(?:\[[^\]]*\]|[\w./]+:\d+\])\s?"
    ),
    # Ray, logging: "2026-11-20 10:00:00,123 ERROR worker.py:1 -- ", "… - vllm.engine - ERROR - "
    re.compile(
        rf"{ISO},?\d* (?:- [\w.]+ )?-? ?\[?{LEVELS}\]? (?:[\w./]+:\d+ )?(?:--?|\[[^\]]*\]) "
    ),
    # uvicorn, as "ERROR:    "
    re.compile(rf"{LEVELS}: {{3,}}"),
)
# The prefix of NCCL's lines, as "node1:4827:6900 [4]".
NCCL_HOST = re.compile(r"(?P<node>[A-Za-z][\w.-]*):\d+:\d+ \[\d+\] ")
# Quotation marks as they are in web pages.
TYPOGRAPHIC = str.maketrans("\u2018\u2019\u201c\u201d\xa0", "''\"\" ")
REPEATED = re.compile(r" (?:\[repeated \d+x across (?:cluster|all nodes)\].*)$")
LINE_CHARACTERS = 20_000
JSON_CHARACTERS = 2**20
MAX_PREFIXES = 8


class LogLine(NamedTuple):
    """A line without its prefixes, and the facts in them."""

    text: str
    level: str = ""
    """`ERROR` and others; empty if the line has none."""
    process: str = ""
    """`Worker_TP1`, `rank0`; empty if the line does not name it."""
    node: str = ""
    """The machine or pod that printed it; empty if the line does not name it."""


def free(line: str) -> LogLine:
    """Return a line of a log as the program wrote it; its indentation stays."""
    if line.startswith("{"):
        line = _out_of_json(line)
    line = line[:LINE_CHARACTERS]
    if "\x1b" in line:
        line = ANSI.sub("", line)
    line, node = _without_collectors(line.rstrip())
    if "\x1b" in line:
        line = ANSI.sub("", line)
    process = ""
    for _ in range(MAX_PREFIXES):
        match = PROCESS.match(line)
        if match is None:
            break
        number = match["number"]
        process = match["rank"] or match["ray"] or match["name"] or ""
        process = f"{process} {number}" if number else process
        node = match["ip"] or node
        line = line[match.end() :]
    level = ""
    for stamp in STAMPS:
        match = stamp.match(line)
        if match:
            level, line = match["level"], line[match.end() :]
            break
    if "[repeated " in line:
        line = REPEATED.sub("", line)
    return LogLine(_plain(line), level, process, _nccl_host(line) or node)


def _plain(line: str) -> str:
    return (line if line.isascii() else line.translate(TYPOGRAPHIC)).rstrip()


def _nccl_host(line: str) -> str:
    match = NCCL_HOST.match(line)
    return match["node"] if match else ""


def _without_collectors(line: str) -> tuple[str, str]:
    node = ""
    for _ in range(MAX_PREFIXES):
        match = next(
            (
                collector
                for collector in (pattern.match(line) for pattern in COLLECTORS)
                if collector
            ),
            None,
        )
        if match is None:
            return line, node
        node = match.groupdict().get("node") or node
        line = line[match.end() :]
        if line.startswith('{"'):
            line = _out_of_json(line)
    return line, node


def _out_of_json(line: str) -> str:
    """Return the message of a line that is a JSON object, as Docker's `json-file` driver writes."""
    try:
        document = syntax.json_value(line[:JSON_CHARACTERS])
    except syntax.BadSyntaxError:
        return line
    if not isinstance(document, dict):
        return line
    for key in JSON_KEYS:
        if isinstance(message := document.get(key), str):
            return message.rstrip("\n")
    return line
