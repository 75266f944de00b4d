"""`vllm-gates report`: writes a run's report again from its verdict.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import project as projects
from pytest_vllm_gates.report import annotations as failures, markdown, publish

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction


def declare(commands: _SubParsersAction[Any]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser("report", help=(__doc__ or "").partition(": ")[2].strip())
    parser.set_defaults(run=run)
    parser.add_argument("path", metavar="PATH", help="a verdict.json, or its folder")
    parser.add_argument(
        "--markdown", action="store_true", help="print the summary as Markdown instead"
    )
    parser.add_argument(
        "--annotations", action="store_true",
        help="print checks that fail or cause HOLD as annotations of GitHub Actions instead",
    )  # fmt: skip


def run(options: Namespace) -> int:
    """Write report.html next to the document, or print the summary."""
    path = Path(options.path)
    document = publish.read(path)
    if options.markdown:
        print(markdown.summary(document), end="")
    elif options.annotations:
        for line in failures.lines(document, projects.current()):
            print(line)
    else:
        folder = path if path.is_dir() else path.parent
        print(publish.write_html(folder, document))
    return 0
