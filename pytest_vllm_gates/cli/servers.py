"""`vllm-gates servers`: lists and stops the servers that `--keep-server` left running."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.server.kept import registry as kept_registry
from pytest_vllm_gates.server.kept.process import read_ending
from pytest_vllm_gates.server.kept.record import shown, span
from pytest_vllm_gates.server.kept.registry import KeptState

if TYPE_CHECKING:
    import argparse

    from pytest_vllm_gates.server.kept.registry import KeptEntry


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    summary = "list the servers that runs with --keep-server left running"
    parser = commands.add_parser("servers", help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=show)
    summary = "stop kept servers"
    stop = parser.add_subparsers(metavar="stop").add_parser(
        "stop", help=summary, description=summary
    )
    selection = stop.add_mutually_exclusive_group()
    selection.add_argument(
        "which", nargs="?", metavar="NAME|PID", help="the server of this name, or with this process"
    )
    selection.add_argument("--all", action="store_true", help="every server of this user")
    stop.add_argument("--force", action="store_true", help="also stop a server that a run is using")
    stop.set_defaults(run=end)


def show(options: argparse.Namespace) -> int:
    """Print the kept servers; raises `UserError` if others can write to their folder."""
    entries = [*kept_registry.entries(kept_registry.existing_root())]
    if options.json:
        print(json.dumps([_document(entry) for entry in entries], indent=2))
        return 0
    if not entries:
        print("no server is kept: pytest --model NAME --keep-server")
    for entry in entries:
        print("\n".join(_lines(entry)))
    return 0


def end(options: argparse.Namespace) -> int:
    """Stop the chosen servers; 1 if one is in use.

    Raises `UserError` if none or several match.
    """
    entries = [*kept_registry.entries(kept_registry.existing_root())]
    chosen = entries if options.all else [_chosen(entries, options.which)]
    left_running = 0
    for entry in chosen:
        if entry.state is KeptState.UNSAFE:
            left_running += 1
            problem = kept_registry.open_to_others(entry.folder)
            print(f"{entry.name} was not stopped: {entry.folder} {problem}")
        elif entry.state is KeptState.ELSEWHERE and entry.record:
            print(
                f"{entry.name} was not stopped: it is on {shown(entry.record.host.name)}; stop it "
                f"there, or "
                f"forget it: rm -r {entry.folder}"
            )
        elif kept_registry.stop(entry, force=options.force):
            print(f"{entry.name} ended" if entry.record else f"{entry.name} cleared away")
        else:
            left_running += 1
            print(f"{entry.name} is in use by a run: end the run first, or add --force")
    return 1 if left_running else 0


def _chosen(entries: list[KeptEntry], which: str | None) -> KeptEntry:
    names = ", ".join(entry.name for entry in entries) or "none"
    if which is None and len(entries) == 1:
        return entries[0]
    matches = [entry for entry in entries if which in {entry.name, *map(str, _pids(entry))}]
    if not matches:
        raise UserError(
            f"no kept server has the name {which!r}\nkept: {names}"
            if which
            else f"several servers are kept: {names}\nvllm-gates servers stop NAME, or --all"
        )
    return matches[0]


def _pids(entry: KeptEntry) -> list[int]:
    record = entry.record
    return [record.server.pid, record.keeper.pid] if record else []


def _document(entry: KeptEntry) -> dict[str, Any]:
    """Return the facts of an entry as JSON: times in seconds, without the key."""
    record, ending = entry.record, read_ending(entry.folder)
    up = entry.state in (KeptState.IDLE, KeptState.IN_USE)
    idle_s = entry.hold.idle_s() if entry.state is KeptState.IDLE else None
    log = kept_registry.log_of(entry)
    document: dict[str, Any] = {"name": entry.name, "state": str(entry.state)}
    if record is None:
        return document
    return document | {
        "family": shown(record.family),
        "lane": shown(record.lane),
        "checkpoint": shown(record.checkpoint),
        "pid": record.server.pid,
        "url": record.base_url,
        "age_s": round(time.time() - record.booted_at.timestamp()),
        "idle_s": None if idle_s is None else round(idle_s),
        "ends_in_s": None if idle_s is None else max(0, round(entry.hold.idle_limit_s - idle_s)),
        "idle_limit_s": entry.hold.idle_limit_s if up else None,
        "exit_status": ending[0] if ending else None,
        "log": str(log) if log else None,
    }


def _lines(entry: KeptEntry) -> list[str]:
    """Return the printed lines of an entry."""
    document = _document(entry)
    if entry.record is None:
        return [f"{entry.name}  {document['state']}"]
    state = document["state"]
    if document["exit_status"] is not None:
        state += f" (exit status {document['exit_status']})"
    elif document["idle_s"] is not None:
        state += f" for {span(document['idle_s'])}, ends in {span(document['ends_in_s'])}"
    elif entry.state is KeptState.ELSEWHERE:
        state = f"on {shown(entry.record.host.name)}"
    lines = [
        f"{entry.name}  {document['family']} ({document['checkpoint']}) "
        f"on lane {document['lane']}, {state}",
        f"{'':<{len(entry.name)}}  booted {span(document['age_s'])} ago, pid {document['pid']}, "
        f"{document['url']}",
    ]
    if document["log"]:
        lines.append(f"{'':<{len(entry.name)}}  log: {document['log']}")
    return lines
