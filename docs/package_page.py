"""hatchling's hook: the package's page is the README, with addresses that lead somewhere.

A package index shows the README alone: relative links and pictures would be broken there. Set
`PACKAGE_REPOSITORY` to the repository's address, such as https://github.com/OWNER/NAME: links point
to its files, pictures to its raw files, and the project's addresses are listed. Without it the
README stays as it is, and the project lists no addresses.

https://hatch.pypa.io/latest/plugins/metadata-hook/custom/
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = r"\(((?![a-z]+:|#)[^)\s]+)\)"
PICTURE = re.compile(r"(!\[[^\]]*\])" + RELATIVE)
LINK = re.compile(r"(\])" + RELATIVE)


def with_addresses(text: str, repository: str) -> str:
    """Return a page whose relative links and pictures lead to a repository's files."""
    text = PICTURE.sub(rf"\1({repository}/raw/HEAD/\2)", text)
    return LINK.sub(rf"\1({repository}/blob/HEAD/\2)", text)


class PackagePage(MetadataHookInterface):
    """Fills in the fields that depend on the repository's address."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the page, and the project's addresses if the repository is known."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("PACKAGE_REPOSITORY", "").rstrip("/")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_addresses(text, repository) if repository else text,
        }
        if repository:
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{repository}/blob/HEAD/docs/index.md",
                "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
                "Issues": f"{repository}/issues",
                "Security": f"{repository}/blob/HEAD/SECURITY.md",
            }
