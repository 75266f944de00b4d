"""An all-reduce between ranks, as a document and as a person reads it.

The known failures as a list, as JSON and as the page `docs/signatures.md`.

The preflight checks, as a document and as a person reads them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.all_reduce import checks as judge
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
    """Return the document of an all-reduce that was not tried, and why."""
    return {"state": NOT_RUN, "why": why}


def all_reduce_document(seen: Ranks) -> dict[str, Any]:
    """Return it as JSON. Bandwidths are in gigabytes (10^9 bytes) a second."""
    fault = judge.fault(seen)
    return {
        "state": FAILS if fault else OK,
        "why": fault,
        "backend": seen.backend,
        "world_size": seen.world,
        "interfaces": judge.interfaces(seen),
        "told": dict(seen.told),
        "devices": [rank.facts.get("device") for rank in seen.ranks],
        "torch": next((rank.facts["torch"] for rank in seen.ranks if "torch" in rank.facts), None),
        "took_s": seen.took_s,
        "sizes": [
            {
                "bytes": bandwidth.bytes,
                "round_s": bandwidth.round_s,
                "algbw": bandwidth.algorithm,
                "busbw": bandwidth.bus,
            }
            for bandwidth in judge.bandwidths(seen)
        ],
        "ranks": [
            {
                "rank": rank.number,
                "step": rank.steps[-1].name if rank.steps else None,
                "addresses": list(rank.facts.get("addresses", ())),
                "failed": rank.failed or None,
                "doing": rank.doing or None,
            }
            for rank in seen.ranks
        ],
        "command": list(seen.command),
        "log": str(seen.log),
    }


def all_reduce_line(seen: Ranks) -> str:
    """Return one that went well in one line, with the bandwidth of its largest size."""
    best = judge.bandwidths(seen)[-1]
    return (
        f"all-reduce over {seen.world} ranks: right, by {_how(seen)}; {in_words(best.bytes)} in "
        f"{_time(best.round_s)}, bus bandwidth {best.bus:.2f} GB/s"
    )


def all_reduce_lines(seen: Ranks) -> Iterator[str]:
    """Yield what was measured, a line a size."""
    devices = sorted({str(rank.facts.get("device", "?")) for rank in seen.ranks})
    yield f"ranks       {seen.world} on {', '.join(devices)}"
    yield f"by          {_how(seen)}"
    if links := seen.told.get("links"):
        yield f"links       {links}"
    yield f"{'size':>10}  {'time':>10}  {'algbw GB/s':>10}  {'busbw GB/s':>10}"
    for bandwidth in judge.bandwidths(seen):
        yield (
            f"{in_words(bandwidth.bytes):>10}  {_time(bandwidth.round_s):>10}  {bandwidth.algorithm:>10.2f}  "
            f"{bandwidth.bus:>10.2f}"
        )


def _how(seen: Ranks) -> str:
    version = f" {seen.told['nccl']}" if "nccl" in seen.told else ""
    return f"{seen.backend}{version} over {', '.join(judge.interfaces(seen)) or 'no network'}"


def _time(seconds: float) -> str:
    return f"{seconds * MILLI:.1f} ms" if seconds >= 1 / MILLI else f"{seconds * MICRO:.0f} us"


HEAD = """# Failures that have a name

Made from `pytest_vllm_gates/signatures/*.toml` by `vllm-gates signatures --markdown`; edit those.

A failed boot is shown with its id, its cause and the fix, and so is `vllm-gates explain LOG`. A
*wrapper* only reports that something else failed, and a *warning* is told beside the answer. Words
in braces are taken from the log. Signatures of your own go to `signatures/*.toml` beside your
`pyproject.toml`; one with an id of these replaces it.
"""


def signature_lines(classes: Sequence[SignatureClass]) -> list[str]:
    """Return the list that a person reads in a terminal."""
    width = max((len(text) for each in classes for text in each.ids), default=0)
    found: list[str] = []
    for each in classes:
        found += ([""] if found else []) + [f"{each.name}: {each.title}"]
        for signature in each.signatures:
            kind = "" if signature.kind == "failure" else f" ({signature.kind})"
            found.append(f"  {signature.id:{width}}  {signature.phase:8}  {signature.title}{kind}")
    count = sum(len(each.signatures) for each in classes)
    return [*found, "", f"{count} signatures in {len(classes)} classes"]


def signature_document(classes: Sequence[SignatureClass]) -> list[dict[str, Any]]:
    """Return the signatures with everything their files say."""
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
    if signature.patterns:
        rows += ["", "```text", *signature.patterns, "```"]
    rows += _conditions(signature)
    if signature.references:
        rows += ["", f"Seen in {', '.join(signature.references)}."]
    return "\n".join(rows) + "\n"


def _conditions(signature: Signature) -> list[str]:
    """Return what must hold around its line, a line each."""
    when, rules = signature.when, signature.machine
    near = f"a line within {when.within} lines matches"
    told = [
        f"- {what} {' or '.join(f'`{pattern}`' for pattern in patterns)}"
        for what, patterns in (
            ("an earlier line matches", when.after),
            ("no earlier line matches", when.not_after),
            (near, when.near),
            (near.replace("a line", "no line"), when.not_near),
        )
        if patterns
    ]
    if when.exit_status:
        told.append(f"- the exit status is {' or '.join(map(str, when.exit_status))}")
    told += [f"- this machine may support it: `{name}`" for name in rules.supports]
    told += [f"- this machine may contradict it: `{name}`" for name in rules.contradicts]
    return ["", *told] if told else []


def preflight_document(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """Return the checks as JSON."""
    return [dataclasses.asdict(check) for check in checks]


def preflight_command(family: Family, checkpoint: Checkpoint, lane: str) -> str:
    """Return what a person types to see whether a family can boot on a lane."""
    listed = checkpoint.name in [entry.name for entry in family.checkpoints]
    named = checkpoint.name if listed else checkpoint.source
    return f"vllm-gates preflight --model {family.name} --checkpoint {named} --lane {lane}"


def preflight_lines(checks: Iterable[Check]) -> Iterator[str]:
    """Yield one line a check, and under one that fails its cause and what to do."""
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
