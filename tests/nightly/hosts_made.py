"""vLLM's hosts of wheels and commits, served on this machine by a real HTTP server.

Nothing here is a copy of the live index, which tests cannot reach: the lists of wheels are composed
as vLLM's `.buildkite/scripts/generate-nightly-index.py` writes them, the comparisons as GitHub's
REST API describes them. The wheels are real, small, and can be installed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from pytest_vllm_gates.nightly import hosts as nightly_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_vllm_gates.nightly.hosts import NightlyHosts

SUBJECT = "[Kernel] Change number {number} (#{pull})"


def sha(number: int) -> str:
    """Return the hash of the commit of that number."""
    return hashlib.sha1(f"commit {number}".encode()).hexdigest()  # noqa: S324 - as git does


@dataclass
class MadeHosts:
    """A server for wheels and commits, and the requests to it."""

    address: str
    folder: Path
    commits: list[str] = field(default_factory=list)
    """Hashes on main, the earliest first."""
    tags: dict[str, int] = field(default_factory=dict)
    """Positions of tags among them."""
    asked: list[str] = field(default_factory=list)
    refuses: int = 0
    """The status with which comparisons are refused."""

    @property
    def hosts(self) -> NightlyHosts:
        """Return these hosts."""
        return nightly_hosts.named(
            {"wheels": f"{self.address}/wheels", "commits": f"{self.address}/repos/vllm"}
        )

    def at(self, reference: str) -> int | None:
        """Return the position of a tag or of the beginning of a hash."""
        if reference in self.tags:
            return self.tags[reference]
        return next(
            (at for at, each in enumerate(self.commits) if each.startswith(reference)), None
        )

    def wheel(
        self, number: int, *, variant: str = "", machine: str = "manylinux_2_17_x86_64",
        quoted: bool = True, whole: bool = False,
    ) -> str:  # fmt: skip
        """Publish the wheel of a commit; `whole` makes its file, too. Returns its name."""
        commit = sha(number)
        local = f"g{commit[:9]}" + (f".{variant}" if variant else "")
        version = f"0.23.1rc1.dev{number}+{local}"
        name = f"vllm-{version}-cp38-abi3-{machine}.whl"
        listed = self.folder / commit / variant / "vllm" / "metadata.json"
        listed.parent.mkdir(parents=True, exist_ok=True)
        up = "../../" if variant else "../"
        entry = {
            "package_name": "vllm", "version": version.removesuffix(f".{variant}"),
            "build_tag": None, "python_tag": "cp38", "abi_tag": "abi3", "platform_tag": machine,
            "variant": variant or None, "filename": name,
            "path": up + (name.replace("+", "%2B") if quoted else name),
        }  # fmt: skip
        earlier = json.loads(listed.read_text()) if listed.exists() else []
        listed.write_text(json.dumps([*earlier, entry], indent=2))
        if whole:
            write_wheel(self.folder / commit / name, version)
        return name

    def comparison(self, base: str, head: str, page: int, per_page: int) -> dict[str, Any] | None:
        """Return GitHub's answer for two references; None if it does not know one."""
        low, high = self.at(base), self.at(head)
        if low is None or high is None:
            return None
        own = range(low + 1, high + 1)
        shown = [*own][(page - 1) * per_page : page * per_page]
        return {
            "status": "ahead" if high > low else "behind",
            "ahead_by": len(own),
            "behind_by": max(0, low - high),
            "total_commits": len(own),
            "commits": [
                {"sha": self.commits[at], "commit": {
                    "message": SUBJECT.format(number=at, pull=40_000 + at) + "\n\nMore.",
                    "committer": {"date": f"2026-07-{at % 28 + 1:02}T12:00:00Z"}}}
                for at in shown
            ],
        }  # fmt: skip


def write_wheel(path: Path, version: str) -> None:
    """Write a wheel of vLLM that has no server inside."""
    info = f"vllm-{version}.dist-info"
    files = {
        "vllm/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n"
        f"Tag: {'-'.join(path.stem.split('-')[2:])}\n",
    }
    lines = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            lines.append(f"{name},sha256={digest.decode()},{len(text.encode())}")
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))


def _handler(made: MadeHosts) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            made.asked.append(self.path)
            status, content = _reply(made, self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            pass

    return Handler


def _reply(made: MadeHosts, path: str) -> tuple[int, bytes]:
    parts = urlsplit(path)
    words = parts.path.strip("/").split("/")
    if words[0] == "repos":
        if made.refuses:
            return made.refuses, b"{}"
        base, _, head = words[-1].partition("...")
        asked = {key: int(values[0]) for key, values in parse_qs(parts.query).items()}
        document = made.comparison(base, head, asked["page"], asked["per_page"])
        return (404, b"{}") if document is None else (200, json.dumps(document).encode())
    file = made.folder.joinpath(*map(unquote, words[1:]))
    # Storage without listing answers 403 for a missing key, and `+` means a space.
    known = file.is_file() and "+" not in path
    return (200, file.read_bytes()) if known else (403, b"AccessDenied")


@pytest.fixture(name="made_hosts")
def made_hosts_fixture(tmp_path: Path) -> Iterator[MadeHosts]:
    """Return hosts with ten commits on main, tags at the ends, and no wheels."""
    made = MadeHosts("", tmp_path / "published")
    made.folder.mkdir()
    made.commits = [sha(number) for number in range(10)]
    made.tags = {"v0.31.0": 0, "v0.32.0": 9}
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    made.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()
