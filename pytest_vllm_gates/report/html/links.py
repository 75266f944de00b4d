"""Links of the page: to issues of known defects, to the server's log, to the page of a gate."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_vllm_gates.report.html.drawing import mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from markupsafe import Markup

ISSUE = re.compile(
    r"(?<![\w./-])([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9][\w.-]{0,99})#(\d{1,7})(?!\w)"
)
"""An issue in the form that known defects and signatures use: vllm-project/vllm#51641."""
ISSUES = "https://github.com/{}/{}/issues/{}"


def with_issues(text: str, finalize: Callable[[str], Any]) -> Markup:
    """Return a text of the project's own files with its issues as links."""
    from markupsafe import Markup  # noqa: PLC0415

    parts, end = [], 0
    shown = str(finalize(text))
    linked = Markup('<a href="{}" rel="noreferrer">{}</a>')
    for issue in ISSUE.finditer(shown):
        parts.append(Markup("{}").format(shown[end : issue.start()]))
        parts.append(linked.format(ISSUES.format(*issue.groups()), issue[0]))
        end = issue.end()
    return Markup("").join([*parts, Markup("{}").format(shown[end:])])


def server_log(folder: Path | None, family: Mapping[str, Any]) -> str:
    """Return the log of a family's server as a link from the report's folder.

    A log that was copied with the report is found beside it. '' for a log outside that folder: the
    link would break when the report is moved.
    """
    log = mapping(mapping(family.get("boot")).get("evidence")).get("log")
    if folder is None or not isinstance(log, str) or not log:
        return ""
    try:
        root = folder.resolve()
        for place in (Path(log), root / str(family.get("name", "")) / Path(log).name):
            path = place.resolve()
            if path.is_relative_to(root) and path.is_file():
                # A name that begins with letters and a colon would be read as a URL.
                return quote(path.relative_to(root).as_posix())
    except (OSError, ValueError):  # not a path
        return ""
    return ""
