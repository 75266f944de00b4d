"""The known failures as a list, as JSON and as the page `docs/signatures.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.diagnosis.signature import Signature, SignatureClass

HEAD = """# Failures that have a name

Made from `pytest_vllm_gates/signatures/*.toml` by `vllm-gates signatures --markdown`; edit those.

A failed boot is shown with its id, its cause and the fix, and so is `vllm-gates explain LOG`. A
*wrapper* only reports that something else failed, and a *warning* is told beside the answer. Words
in braces are taken from the log. Signatures of your own go to `signatures/*.toml` beside your
`pyproject.toml`; one with an id of these replaces it.
"""


def lines(classes: Sequence[SignatureClass]) -> list[str]:
    """Return the list that a person reads in a terminal."""
    width = max((len(one) for each in classes for one in each.ids), default=0)
    found: list[str] = []
    for each in classes:
        found += ([""] if found else []) + [f"{each.name}: {each.title}"]
        for one in each.signatures:
            kind = "" if one.kind == "failure" else f" ({one.kind})"
            found.append(f"  {one.id:{width}}  {one.phase:8}  {one.title}{kind}")
    count = sum(len(each.signatures) for each in classes)
    return [*found, "", f"{count} signatures in {len(classes)} classes"]


def document(classes: Sequence[SignatureClass]) -> list[dict[str, Any]]:
    """Return the signatures with everything their files say."""
    return [each.model_dump(mode="json") for each in classes]


def markdown(classes: Sequence[SignatureClass]) -> str:
    """Return the page."""
    parts = [HEAD]
    for each in classes:
        parts.append(f"## {each.title}\n")
        parts += [_section(one) for one in each.signatures]
    return "\n".join(parts)


def _section(one: Signature) -> str:
    about = [one.phase, *([] if one.kind == "failure" else [one.kind])]
    rows = [f"### {one.id}: {one.title}", "", f"*{', '.join(about)}.* {one.text.cause}", ""]
    rows += [f"{number}. {fix}" for number, fix in enumerate(one.text.fixes, start=1)]
    if one.patterns:
        rows += ["", "```text", *one.patterns, "```"]
    rows += _conditions(one)
    if one.references:
        rows += ["", f"Seen in {', '.join(one.references)}."]
    return "\n".join(rows) + "\n"


def _conditions(one: Signature) -> list[str]:
    """Return what must hold around its line, a line each."""
    when, rules = one.when, one.machine
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
