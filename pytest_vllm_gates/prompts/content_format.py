"""Detects how vLLM passes a template the content of messages: as texts, or as lists of parts.

vLLM reads the template for that: a loop over the content of a message, found through assignments
and macros, means that every content is a list of parts, also for a plain text
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTENT = "content"
MESSAGES = "messages"


def takes_parts(template: str) -> bool:
    """Return whether a template gets content in parts; an unreadable one does not."""
    from transformers.utils import chat_template_utils  # noqa: PLC0415 - slow to import

    try:
        compiled: Any = chat_template_utils._compile_jinja_template(template)  # noqa: SLF001 - vLLM
        root: nodes.Template = compiled.environment.parse(template)
        return any(True for _ in _loops_over_content(root))
    except Exception:  # noqa: BLE001 - vLLM takes it for one that wants texts
        return False


def _loops_over_content(root: nodes.Template) -> Iterator[nodes.For]:
    messages = set(_message_names(root))
    inside: dict[int, set[str]] = {}
    for macro in root.find_all(nodes.Macro):
        parameters = set(_parameters_given_content(root, macro, messages))
        inside |= {id(loop): parameters for loop in macro.find_all(nodes.For)}
    for loop in root.find_all(nodes.For):
        name = loop.iter.name if isinstance(loop.iter, nodes.Name) else None
        # Outside of macros a variable called content is taken for a message's.
        if any(_is_part_of(loop.iter, message, CONTENT) for message in messages) or name in (
            inside.get(id(loop), {CONTENT})
        ):
            yield loop


def _message_names(root: nodes.Template) -> Iterator[str]:
    """Yield the variables of loops over the messages, or over what was made of them."""
    lists = [MESSAGES]
    for known in lists:  # the list grows meanwhile
        for assigned in root.find_all(nodes.Assign):
            if _is_part_of(assigned.node, known):
                name = _named(assigned.target)
                lists += [name] if name not in lists else []
    for loop in root.find_all(nodes.For):
        if any(_is_part_of(loop.iter, name) for name in lists):
            yield _named(loop.target)


def _parameters_given_content(
    root: nodes.Template, macro: nodes.Macro, messages: set[str]
) -> Iterator[str]:
    """Yield the parameters of a macro that some call passes a message's content to."""
    names = [parameter.name for parameter in macro.args]
    for call in root.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name != macro.name:
            continue
        arguments = [*zip(names, call.args, strict=False)]
        arguments += [
            (keyword.key, keyword.value) for keyword in call.kwargs if keyword.key in names
        ]
        for name, value in arguments:
            if any(_is_part_of(value, message, CONTENT) for message in messages):
                yield name


def _named(target: nodes.Node) -> str:
    """Return a variable's name; vLLM stops here for a template that sets anything else."""
    if not isinstance(target, nodes.Name):
        raise TypeError(target)
    return target.name


def _is_part_of(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Return whether an expression is a variable or its key, filtered, tested or sliced."""
    if isinstance(node, nodes.Filter | nodes.Test):
        return _is_part_of(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _is_part_of(node.node, name, key)
    if key is not None:
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            return bool(node.arg.value == key) and _is_part_of(node.node, name)
        if isinstance(node, nodes.Getattr):
            return node.attr == key and _is_part_of(node.node, name)
        return False
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
