"""All-reduce results, known failures and preflight checks, as JSON and as text for people.

The known failures also become the page `docs/signatures.md`.
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.all_reduce.checks import bandwidths, fault, interfaces
from pytest_vllm_gates.all_reduce.types import in_words
from pytest_vllm_gates.preflight.types import CheckState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_vllm_gates.all_reduce.types import Ranks
    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.diagnosis.signature import Signature, SignatureClass
    from pytest_vllm_gates.preflight.types import Check

OK, FAILS, NOT_RUN = "ok", "fails", "not run"
MICRO, MILLI = 1e6, 1e3


def all_reduce_not_run(why: str) -> dict[str, Any]:
    """Return the document of an all-reduce that was not tried, with the reason."""
    return {"state": NOT_RUN, "why": why}


def all_reduce_document(result: Ranks) -> dict[str, Any]:
    """Return an all-reduce as JSON. Bandwidths are in gigabytes (10^9 bytes) a second."""
    reason = fault(result)
    return {
        "state": FAILS if reason else OK,
        "why": reason,
        "backend": result.backend,
        "world_size": result.world,
        "interfaces": interfaces(result),
        "told": dict(result.told),
        "devices": [rank.facts.get("device") for rank in result.ranks],
        "torch": next(
            (rank.facts["torch"] for rank in result.ranks if "torch" in rank.facts), None
        ),
        "took_s": result.took_s,
        "sizes": [
            {
                "bytes": bandwidth.bytes,
                "round_s": bandwidth.round_s,
                "algbw": bandwidth.algorithm,
                "busbw": bandwidth.bus,
            }
            for bandwidth in bandwidths(result)
        ],
        "ranks": [
            {
                "rank": rank.number,
                "step": rank.steps[-1].name if rank.steps else None,
                "addresses": list(rank.facts.get("addresses", ())),
                "failed": rank.failed or None,
                "doing": rank.doing or None,
            }
            for rank in result.ranks
        ],
        "command": list(result.command),
        "log": str(result.log),
    }


def all_reduce_line(result: Ranks) -> str:
    """Return a successful all-reduce in one line, with the bandwidth of its largest size."""
    best = bandwidths(result)[-1]
    return (
        f"all-reduce over {result.world} ranks: right, by {_how(result)}; "
        f"{in_words(best.bytes)} in {_time(best.round_s)}, bus bandwidth {best.bus:.2f} GB/s"
    )


def all_reduce_lines(result: Ranks) -> Iterator[str]:
    """Yield the measurements, one line for each size."""
    devices = sorted({str(rank.facts.get("device", "?")) for rank in result.ranks})
    yield f"ranks       {result.world} on {', '.join(devices)}"
    yield f"by          {_how(result)}"
    if links := result.told.get("links"):
        yield f"links       {links}"
    yield f"{'size':>10}  {'time':>10}  {'algbw GB/s':>10}  {'busbw GB/s':>10}"
    for bandwidth in bandwidths(result):
        yield (
            f"{in_words(bandwidth.bytes):>10}  {_time(bandwidth.round_s):>10}  "
            f"{bandwidth.algorithm:>10.2f}  {bandwidth.bus:>10.2f}"
        )


def _how(result: Ranks) -> str:
    version = f" {result.told['nccl']}" if "nccl" in result.told else ""
    return f"{result.backend}{version} over {', '.join(interfaces(result)) or 'no network'}"


def _time(seconds: float) -> str:
    return f"{seconds * MILLI:.1f} ms" if seconds >= 1 / MILLI else f"{seconds * MICRO:.0f} us"


HEAD = """# Failures that have a name

Made from `pytest_vllm_gates/signatures/*.toml` by `vllm-gates signatures --markdown`; edit those.

A failed boot and `vllm-gates explain LOG` show the id, the cause and the fix. A *wrapper* only
reports that something else failed, and a *warning* is shown in addition to the cause. Words in
braces are taken from the log. Put your own signatures into `signatures/*.toml` beside your
`pyproject.toml`; a signature with an id from this page replaces it.
"""


def signature_lines(classes: Sequence[SignatureClass]) -> list[str]:
    """Return the list for a terminal."""
    width = max((len(identifier) for each in classes for identifier in each.ids), default=0)
    lines: list[str] = []
    for each in classes:
        lines += ([""] if lines else []) + [f"{each.name}: {each.title}"]
        for signature in each.signatures:
            kind = "" if signature.kind == "failure" else f" ({signature.kind})"
            lines.append(f"  {signature.id:{width}}  {signature.phase:8}  {signature.title}{kind}")
    count = sum(len(each.signatures) for each in classes)
    return [*lines, "", f"{count} signatures in {len(classes)} classes"]


def signature_document(classes: Sequence[SignatureClass]) -> list[dict[str, Any]]:
    """Return the signatures with all fields of their files."""
    return [each.model_dump(mode="json") for each in classes]


def signature_page(classes: Sequence[SignatureClass]) -> str:
    """Return the page."""
    parts = [HEAD]
    for each in classes:
        parts.append(f"## {each.title}\n")
        parts += [_section(signature) for signature in each.signatures]
    return "\n".join(parts)


def _section(signature: Signature) -> str:
    about = [signature.phase, *([] if signature.kind == "failure" else [signature.kind])]
    rows = [
        f"### {signature.id}: {signature.title}",
        "",
        f"*{', '.join(about)}.* {signature.text.cause}",
        "",
    ]
    rows += [f"{number}. {fix}" for number, fix in enumerate(signature.text.fixes, start=1)]
    shown = signature.text.shown
    rows += ["", "If the log or the machine shows that it is needed, first:", ""] if shown else []
    rows += [f"- {each.fix}" for each in shown]
    if signature.patterns:
        rows += ["", "```text", *signature.patterns, "```"]
    rows += _conditions(signature)
    if signature.references:
        rows += ["", f"Seen in {', '.join(signature.references)}."]
    return "\n".join(rows) + "\n"


def _conditions(signature: Signature) -> list[str]:
    """Return the conditions around the signature's line, one line each."""
    when, rules = signature.when, signature.machine
    near = f"a line within {when.within} lines matches"
    lines = [
        f"- {rule} {' or '.join(f'`{pattern}`' for pattern in patterns)}"
        for rule, patterns in (
            ("an earlier line matches", when.after),
            ("no earlier line matches", when.not_after),
            (near, when.near),
            (near.replace("a line", "no line"), when.not_near),
        )
        if patterns
    ]
    if when.exit_status:
        lines.append(f"- the exit status is {' or '.join(map(str, when.exit_status))}")
    lines += [f"- this machine may support it: `{name}`" for name in rules.supports]
    lines += [f"- this machine may contradict it: `{name}`" for name in rules.contradicts]
    return ["", *lines] if lines else []


def preflight_document(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """Return the checks as JSON."""
    return [dataclasses.asdict(check) for check in checks]


def preflight_command(family: Family, checkpoint: Checkpoint, lane: str) -> str:
    """Return the command that checks whether a family can boot on a lane."""
    is_listed = checkpoint.name in [listed.name for listed in family.checkpoints]
    name = checkpoint.name if is_listed else checkpoint.source
    words = ["vllm-gates", "preflight", "--model", family.name, "--checkpoint", name]
    return shlex.join([*words, "--lane", lane])


def preflight_lines(checks: Iterable[Check]) -> Iterator[str]:
    """Yield one line for each check, and for a failed one its cause and its fix."""
    checks = tuple(checks)
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        state = check.state.upper() if check.state is CheckState.FAILS else str(check.state)
        yield f"{check.name:<{width}}  {state:<7}  {check.what}"
        if check.state is CheckState.FAILS:
            yield f"{'':<{width}}  cause:   {check.cause}"
            yield f"{'':<{width}}  fix:     {check.fix}"
    counted = {state: sum(check.state is state for check in checks) for state in CheckState}
    yield ", ".join(f"{number} {state}" for state, number in counted.items() if number)
