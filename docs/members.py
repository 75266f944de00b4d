"""Prints docs/members.md: how each member of each family is tested, and where its facts are from.

python docs/members.py > docs/members.md
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import family as families

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.catalog.family import Family

NO_PROJECT = Path("/nonexistent")
TOP = """\
# Members: how each one is tested

To change this page, edit the files of the families and run
`python docs/members.py > docs/members.md`.

- Miniature: real vLLM serves a small checkpoint of the member's architecture to every gate.
- Renderer: `pytest --model ./folder -m chat_template` renders the member's prompts with vLLM's
  renderer. It needs the checkpoint's tokenizer and template, and no weights.
- Reference: the source of the prompts that the server's prompts are compared with, the
  checkpoint's chat template or an encoder of vLLM.
- Context: the tokens that `config.json` names.

If a fact could not be looked up, its row shows that. To compare parsers and architectures with
your vLLM, run `vllm-gates preflight`.
"""


def page(every: Iterable[Family]) -> str:
    """Return the page."""
    return "\n".join([TOP, *_sections(every)])


def _sections(every: Iterable[Family]) -> Iterator[str]:
    for name, members in groupby(every, key=lambda one: one.name.partition("/")[0]):
        group = [*members]
        yield f"## `{name}`\n"
        yield "| member | title | tested with | reference | context | template for tools |"
        yield "| --- | --- | --- | --- | --- | --- |"
        yield from map(_row, group)
        yield "\n| member | facts | from | looked up |\n| --- | --- | --- | --- |"
        for one in group:
            for source in one.sources:
                cells = (f"`{one.name}`", source.facts, _cell(source.reference), source.looked_up)
                yield f"| {' | '.join(map(str, cells))} |"
            if not one.sources:
                yield f"| `{one.name}` | none is listed | | |"
        yield ""


def _row(one: Family) -> str:
    miniature = any(entry.miniature for entry in one.checkpoints)
    encoder = one.prompt.encoder
    template = one.prescribed_template
    cells = (
        f"`{one.name}`",
        one.title,
        "miniature, renderer" if miniature else "renderer",
        f"encoder `{encoder.rpartition('.')[2]}`" if encoder else "chat template",
        " or ".join(f"{tokens:,}" for tokens in sorted(_contexts(one))),
        f"`{template.file}`" if template else "",
    )
    return f"| {' | '.join(cells)} |"


def _contexts(one: Family) -> set[int]:
    listed = {entry.native or one.context.native for entry in one.checkpoints if entry.hub}
    return listed or {one.context.native}


def _cell(text: str) -> str:
    """Return a text that neither ends a cell nor is read as markup."""
    return f"`{text}`" if "<" in text or "_" in text else text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(families.load_all(NO_PROJECT)), end="")
