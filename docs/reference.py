"""Prints docs/reference.md from the code: options, files, commands, outcomes and schemas.

python docs/reference.py > docs/reference.md
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import json
import re
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticUndefined

import pytest_vllm_gates
from pytest_vllm_gates import outcomes
from pytest_vllm_gates.catalog import conversation, family, known_defects, lane, toml, waivers
from pytest_vllm_gates.cli import main as cli_main
from pytest_vllm_gates.diagnosis import signature
from pytest_vllm_gates.options import __main__ as options_table, table
from pytest_vllm_gates.options.record import options_of
from pytest_vllm_gates.verdict import gates as verdict_gates, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pytest_vllm_gates.__file__).parent
SCHEMAS = {
    "verdict.json": PACKAGE / "report" / "verdict.schema.json",
    "incident.json": PACKAGE / "incidents" / "incident.schema.json",
}
TOP = """\
# Reference

Made by `python docs/reference.py > docs/reference.md` from the docstrings and help texts of the
code; edit those.

To learn by doing, follow the [tutorial](tutorial.md). To solve one task, see the [index](index.md).
"""
FILES = (
    (
        "Lane",
        "`lanes/NAME.toml`: one pinned bundle that serves. [Lanes](lanes.md).",
        lane.Lane,
    ),
    (
        "Family",
        "`families/NAME.toml`: a line of models that are served the same way. "
        "[Families](families.md).",
        family.Family,
    ),
    (
        "Conversation",
        "`conversations/NAME.toml`: a conversation of your own. [Adding](adding.md).",
        conversation.Conversation,
    ),
    (
        "Waiver",
        "`waivers.toml`: failures that your project accepts until a date. [Verdict](verdict.md).",
        waivers.Waiver,
    ),
    (
        "Known defect",
        "`known_defects.toml`: defects of released vLLM. [Verdict](verdict.md).",
        known_defects.KnownDefect,
    ),
    (
        "Signature",
        "`signatures/NAME.toml`: a failure by the lines that it prints. [Adding](adding.md).",
        signature.Signature,
    ),
)
STATUSES = (
    ("pytest", str(verdict.EXIT_OK), "No test failed. With `--require-promotion`: PROMOTE."),
    (
        "pytest",
        str(verdict.EXIT_BROKEN),
        "A test failed, was blocked, or has no golden. With `--require-promotion`: REJECT.",
    ),
    ("pytest", "2, 3, 4, 5", "pytest's own: interrupted, internal error, usage error, no tests."),
    ("pytest", str(verdict.EXIT_HOLD), "With `--require-promotion`: HOLD."),
    ("vllm-gates", "0", "The command did its work, or every check passed."),
    ("vllm-gates", "1", "Something cannot work, or the output could not be written."),
    ("vllm-gates", "2", "The arguments are not valid."),
    ("vllm-gates", str(cli_main.NOBODY_READS), "The reader of a pipe ended (`| head`)."),
)


def page() -> str:
    """Return the page."""
    return "\n".join([TOP, *_options(), *_markers(), *_outcomes(), *_commands(), *_files(),
                      *_schemas(), *_api()])  # fmt: skip


def _options() -> Iterator[str]:
    yield "## Options of pytest\n"
    yield "Each option has a long name for projects where another plugin uses the short one, and a"
    yield "setting for pytest's configuration file.\n"
    yield from options_table.markdown(options_of(table.Options))
    yield ""


def _markers() -> Iterator[str]:
    yield "## Markers\n"
    yield "Each gate is a marker: `pytest --model qwen3.5 -m tools` runs one gate.\n"
    yield "| marker | checks |\n| --- | --- |"
    for name, file in sorted(verdict_gates.gate_files().items()):
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        yield f"| [`{name}`](gates/{name}.md) | {_cell(docstring.partition(chr(10))[0])} |"
    yield ""


def _outcomes() -> Iterator[str]:
    yield "## Outcomes\n"
    yield "| outcome | raised by | meaning |\n| --- | --- | --- |"
    raised = {one.outcome: one for one in outcomes.Undecided.__subclasses__()}
    meaning = {
        outcomes.Outcome.PASS: "Every check passed.",
        outcomes.Outcome.FAIL: "A check failed.",
        outcomes.Outcome.WAIVED: "The project accepts this failure until a date.",
    }
    for outcome in outcomes.Outcome:
        by = raised.get(outcome)
        text = meaning.get(outcome) or _first(by)
        yield f"| {outcome} | {f'`{by.__name__}`' if by else 'a test'} | {_cell(text)} |"
    yield "\nThe verdict of a run is PROMOTE, REJECT or HOLD: [how it is decided](verdict.md).\n"
    yield "## Exit statuses\n"
    yield "| program | status | meaning |\n| --- | --- | --- |"
    yield from (f"| `{program}` | {status} | {text} |" for program, status, text in STATUSES)
    yield ""


def _commands() -> Iterator[str]:
    yield "## Commands\n"
    for name, parser in _parsers(cli_main.parser(), cli_main.PROG):
        yield f"### {name}\n"
        yield f"{_sentence(parser.description or '')}\n"
        rows = [*_arguments(parser)]
        if rows:
            yield "| argument | meaning |\n| --- | --- |"
            yield from rows
            yield ""


def _parsers(
    parser: argparse.ArgumentParser, name: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]  # noqa: SLF001
    if not groups:
        yield name, parser
    for group in groups:
        for word, inner in group.choices.items():
            yield from _parsers(inner, f"{name} {word}")


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):  # noqa: SLF001
            continue
        takes = "" if action.nargs == 0 else f" {_value(action)}"
        names = ", ".join(action.option_strings)
        shown = f"{names}{takes}" if names else _value(action)
        text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
        yield f"| `{shown.replace('|', '/')}` | {_cell(text)} |"


def _value(action: argparse.Action) -> str:
    if action.choices and not action.metavar:
        return "{" + ",".join(map(str, action.choices)) + "}"
    metavar = action.metavar or action.dest
    return metavar if isinstance(metavar, str) else " ".join(metavar)


def _files() -> Iterator[str]:
    yield "## Files of a project\n"
    yield "An unknown key is an error with the file, the line and the nearest known key.\n"
    seen: set[type] = set()
    for title, text, record in FILES:
        yield f"### {title}\n"
        yield f"{text}\n"
        yield from _record(record, seen, top=True)


def _record(record: type, seen: set[type], *, top: bool = False) -> Iterator[str]:
    """Yield a table of a record's keys, then those of the records in it that are new."""
    if record in seen:
        return
    seen.add(record)
    if not top:
        yield f"#### `{record.__name__}`\n"
        yield f"{_first(record)}\n"
    yield "| key | type | default | meaning |\n| --- | --- | --- | --- |"
    texts = _texts(record)
    inner: list[type] = []
    for name, (annotation, default) in _keys(record).items():
        inner += [one for one in _parts(annotation) if isinstance(one, type)
                  and issubclass(one, toml.Record)]  # fmt: skip
        spelled = _cell(f"`{_type(annotation)}`")
        yield f"| `{name}` | {spelled} | {default} | {_cell(texts.get(name, ''))} |"
    yield ""
    for one in inner:
        yield from _record(one, seen)


def _keys(record: type) -> dict[str, tuple[Any, str]]:
    """Return by key its type and its default as TOML has it; without one it is required."""
    fields = getattr(record, "model_fields", None)
    if fields is None:
        hints = typing.get_type_hints(record, include_extras=False)
        return {name: (hint, "") for name, hint in hints.items()}
    hints = typing.get_type_hints(record)
    keys = {}
    for name, one in fields.items():
        if name == "file":
            continue
        default = one.default_factory() if one.default_factory else one.default
        keys[name] = (hints.get(name, one.annotation), _default(default))
    return keys


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ((), {}, []) or isinstance(value, toml.Record):
        return ""
    return f"`{json.dumps(value, default=list)}`"


def _type(annotation: Any) -> str:
    plain = isinstance(annotation, type) and not typing.get_args(annotation)
    text = annotation.__name__ if plain else str(annotation)
    text = re.sub(r"typing\.|(?:\w+\.)+(?=\w)|<class '|'>", "", text)
    text = re.sub(r"Annotated\[(\w+(?:\[[^\]]*\])?),.*\]", r"\1", text)
    return text.replace(" | None", "").replace("tuple[", "list[").replace(", ...]", "]")


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts(part)


def _texts(record: type) -> dict[str, str]:
    """Return the docstrings of a class's attributes, those of its bases among them."""
    texts: dict[str, str] = {}
    for one in reversed(record.__mro__):
        if not one.__module__.startswith(PACKAGE.name):
            continue
        (node,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(one))).body
        body = getattr(node, "body", [])
        for before, after in itertools.pairwise(body):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                texts[before.target.id] = str(after.value.value)
    return texts


def _schemas() -> Iterator[str]:
    yield "## Schemas\n"
    for name, path in SCHEMAS.items():
        schema = json.loads(path.read_text(encoding="utf-8"))
        place = path.relative_to(PACKAGE.parent)
        yield f"### `{name}`\n"
        yield f"{schema['title']}. The whole schema: [`{place.name}`](../{place}).\n"
        yield "| field | type | required | meaning |\n| --- | --- | --- | --- |"
        for field, of_field in schema["properties"].items():
            needed = "yes" if field in schema.get("required", ()) else ""
            text = _cell(of_field.get("description", ""))
            yield f"| `{field}` | {_json_type(of_field)} | {needed} | {text} |"
        yield ""


def _json_type(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    kind = schema.get("type", schema.get("$ref", "any").rpartition("/")[2])
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _api() -> Iterator[str]:
    yield "## Public API\n"
    yield "Import these names from `pytest_vllm_gates`. All else may change in any release.\n"
    yield "| name | meaning |\n| --- | --- |"
    for name in pytest_vllm_gates.__all__:
        yield f"| `{name}` | {_cell(_first(getattr(pytest_vllm_gates, name)))} |"


def _first(documented: Any) -> str:
    """The first paragraph of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n\n")[0]


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def _cell(text: str) -> str:
    """One line for a table: a bar would end the cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(page(), end="")
