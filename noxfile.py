"""The commands of CONTRIBUTING: `nox -l` lists them, `nox -s unit` runs one.

Every session makes a virtual environment with the project and its development dependencies. To
use the environment that runs nox, pass `--no-venv`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
NO_SERVER = "not real and not slow and not alone"
EPOCH = "1767225600"
"""A fixed time for the files of a distribution: two builds have the same bytes."""

nox.options.sessions = ["lint", "unit"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.needs_version = ">=2024.4"


def _develop(session: nox.Session, *more: str) -> None:
    session.install("-q", "-e", ".[dev]", *more)
    session.env.pop("PYTHONDONTWRITEBYTECODE", None)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the tests of one folder each that need milliseconds; the first green in minutes."""
    _develop(session)
    folders = session.posargs or [
        *("tests/catalog", "tests/verdict", "tests/conversations/checks", "tests/throughput"),
        *("tests/memory_plan", "tests/prose", "tests/test_structure.py"),
    ]
    session.run("pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", NO_SERVER, *folders)


@nox.session
def tests(session: nox.Session) -> None:
    """Run every test that boots no server and needs no idle machine."""
    _develop(session)
    given = session.posargs or ["-n", "2", "--dist", "worksteal"]
    session.run("pytest", "-m", NO_SERVER, *given)


@nox.session
def real(session: nox.Session) -> None:
    """Run the tests that boot real vLLM on this machine's CPU."""
    _develop(session)
    given = session.posargs or ["-n", "2", "--dist", "loadfile"]
    session.run("pytest", "-m", "real and not slow and not alone", *given)


@nox.session
def alone(session: nox.Session) -> None:
    """Run the tests that measure time and need an idle machine."""
    _develop(session)
    session.run("pytest", "-m", "alone and not slow", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the extra cases of kinds that are already tested; before a release."""
    _develop(session)
    session.run("pytest", "-m", "slow", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, types and spelling."""
    _develop(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("codespell")


@nox.session
def docs(session: nox.Session) -> None:
    """Write the generated pages again and build the site into `site/`."""
    _develop(session)
    for program, page in (
        (("python", "docs/reference.py"), "docs/reference.md"),
        (("python", "docs/members.py"), "docs/members.md"),
        (("vllm-gates", "signatures", "--markdown"), "docs/signatures.md"),
    ):
        (ROOT / page).write_text(session.run(*program, silent=True) or "", encoding="utf-8")
    session.run("mkdocs", "build", "--strict")


@nox.session
def site(session: nox.Session) -> None:
    """Add this version to the versioned site on the branch gh-pages; nothing is pushed."""
    _develop(session)
    version = session.run(
        "python", "-c", "import pytest_vllm_gates as package; print(package.__version__)",
        silent=True,
    )  # fmt: skip
    session.run("mike", "deploy", "--update-aliases", (version or "").strip(), "latest")
    session.run("mike", "set-default", "latest")


@nox.session
def package(session: nox.Session) -> None:
    """Build the distributions twice, compare their bytes, and check the package's page."""
    session.install("-q", "build", "twine")
    session.env["SOURCE_DATE_EPOCH"] = os.environ.get("SOURCE_DATE_EPOCH", EPOCH)
    with tempfile.TemporaryDirectory() as again:
        session.run("python", "-m", "build", "-q", "-o", "dist")
        session.run("python", "-m", "build", "-q", "-o", again)
        for second in sorted(Path(again).iterdir()):
            first = ROOT / "dist" / second.name
            if first.read_bytes() != second.read_bytes():
                session.error(f"two builds of {second.name} differ")
    session.run("twine", "check", "--strict", *map(str, sorted((ROOT / "dist").iterdir())))
