"""What the project's own tests share."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import cores
import hypothesis
import jsonschema
import openai
import pytest
from servers import running, stub

from pytest_vllm_gates.catalog import conversation, family as families
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.goldens import lock_golden
from pytest_vllm_gates.report import document
from pytest_vllm_gates.session import boot, golden_folders
from pytest_vllm_gates.verdict import gates as verdict_gates

# A busy machine is slow, and what is found is to be found again.
hypothesis.settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile("ci")

Result = pytest.RunResult
Fakes = Callable[..., stub.StubServer]


# Only these: what may run again costs 50 ms beside xdist, for it asks another process.
ASK_SERVERS = {"e2e", "faults"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try what asks a real server once more, and show it: a shared machine can stop for seconds.

    A change that a gate misses is missed twice; a machine that stood still is not still again.
    """
    for item in items:
        if item.get_closest_marker("real") and not ASK_SERVERS.isdisjoint(item.path.parts):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give each of xdist's workers cores of its own for the servers that it boots."""
    if item.get_closest_marker("real"):
        cores.keep(every=item.get_closest_marker("every_core") is not None)


# Plugins that are installed for tests/plugin/test_company.py, which change what others see.
COMPANY = ("asyncio", "html", "randomly")
# Those of these distributions are installed for tests/plugin/test_option_collisions.py.
COLLIDING = {
    "pytest-base-url", "pytest-bdd", "pytest-django", "pytest-flask", "pytest-httpx", "pytest-mock",
    "pytest-playwright", "pytest-selenium", "pytest-variables",
}  # fmt: skip


# No test looks at it, and it costs every run: it imports trio. Workers of xdist are without it as
# well, so that a plugin whose controller waits for its workers, such as pytest-metadata, stays.
COSTLY = ("anyio",)
LEFT_OUT = [f"-p no:{name}" for name in COSTLY] + [
    f"-p no:{entry.name}"
    for entry in entry_points(group="pytest11")
    if entry.dist and entry.dist.name.lower().replace("_", "-") in COLLIDING
]
# Every pytest that a test starts in a process of its own, until the test says otherwise.
os.environ["PYTEST_ADDOPTS"] = " ".join(LEFT_OUT)


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> None:
    """Keep them out of every pytest that a test runs, but for the tests that ask for them."""
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")  # drops what was set before it
        left_out = " ".join([*(f"-p no:{name}" for name in COMPANY), *LEFT_OUT])
        request.getfixturevalue("monkeypatch").setenv("PYTEST_ADDOPTS", left_out)


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    """Start fake servers in this process; they end with the test."""
    with contextlib.ExitStack() as servers:

        def start(*arguments: Any, **options: Any) -> stub.StubServer:
            return servers.enter_context(running(stub.StubServer(*arguments, **options)))

        yield start


@pytest.fixture(scope="session")
def qwen() -> families.Family:
    """A family as it ships."""
    return families.load("qwen3.5", Path("/nowhere"))


CONVERSATIONS = ("plain", "thinking-off", "tool-one")
EXAMPLES = Path(__file__).parent / "example_gates"
GOLDEN_GATE = '''\
"""What is said is what was recorded."""

import json

import pytest

from pytest_vllm_gates.goldens import lock_golden

pytestmark = pytest.mark.words


def test_words_are_the_recorded(conversation, server, golden, evidence):
    evidence["said"] = conversation.messages[-1]["content"]
    parts = {"messages": json.dumps(conversation.messages).encode()}
    golden.check(conversation.name, lock_golden(conversation.title, parts))
'''
SCHEMA = jsonschema.Draft202012Validator(json.loads(document.SCHEMA.read_text()))
LATE = (
    "pytest_vllm_gates.pytest_hooks",
    "pytest_vllm_gates.environment.environment",
    "pytest_vllm_gates.server.launch",
    "pytest_vllm_gates.client.chat",
    "pytest_vllm_gates.server.kept.keeper",
    "pytest_vllm_gates.load.generator.messages",
    "pytest_vllm_gates.conversations.checks.agreement",
    "pytest_vllm_gates.client.sameness",
    "pytest_vllm_gates.diagnosis.explain",
    "pytest_vllm_gates.diagnosis.signature",
    "pytest_vllm_gates.server.exposition",
    "pytest_vllm_gates.report.html.page",
    "pytest_vllm_gates.report.progress",
    *boot.NEEDED_LATER,
    "markdown_it",
    "pynvml",
    "scipy.special",
)
LANE = """\
title = "a fake server"
command = [{python!r}, "-I", "-S", {program!r}, "{{port}}"]
checkpoint = "miniature"

[env]
FAKE = {faults!r}
FAKE_KEY_FILE = {key_file!r}
"""


def forget_submodules() -> None:
    """Take from our packages the modules that pytester has taken from `sys.modules`.

    `from package import module` would give the old module, and `import package.module` a new one:
    then one class is two, and none of its members is the other's.
    """
    ours = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    for name, package in ours.items():
        for attribute, member in [*vars(package).items()]:
            submodule = f"{name}.{attribute}"
            if isinstance(member, ModuleType) and member.__name__ == submodule not in ours:
                delattr(package, attribute)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == "pytest_vllm_gates"


@dataclass
class Project:
    """A project of a user's, with a lane whose server is fake."""

    pytester: pytest.Pytester

    @property
    def path(self) -> Path:
        return self.pytester.path

    @property
    def report(self) -> Path:
        return self.path / "out"

    @property
    def key_file(self) -> Path:
        return self.path / "key"

    def lane(self, faults: str = "", more: str = "") -> None:
        """Write `lanes/fake.toml`."""
        text = LANE.format(
            python=sys.executable,
            program=stub.__file__,
            faults=faults,
            key_file=str(self.key_file),
        )
        self.write("lanes/fake.toml", text + more)

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def pytest(self, *arguments: str) -> Result:
        """Run pytest in this process."""
        try:
            return self.pytester.runpytest_inprocess(
                "-p", "no:cacheprovider", *arguments, no_reraise_ctrlc=True
            )
        finally:
            forget_submodules()

    def gates(self, *arguments: str, faults: str = "") -> Result:
        """Run the gates against the fake server, with a report."""
        self.lane(faults)
        return self.pytest(
            "--model", "qwen3.5", "--lane", "fake", "--gates-report", "out", *arguments
        )

    def verdict(self) -> dict[str, Any]:
        """Return the report of the last run, having seen that it is what its schema says."""
        found: dict[str, Any] = json.loads((self.report / "verdict.json").read_text())
        SCHEMA.validate(found)
        return found

    def outcomes(self) -> dict[str, str]:
        """Return the outcome of every test of the last run, by `gate::test`."""
        return {
            f"{gate['gate']}::{test['test'].replace('[qwen3.5', '[').replace('[-', '[')}": test[
                "outcome"
            ]
            for family in self.verdict()["families"]
            for gate in family["gates"]
            for test in gate["tests"]
        }


@pytest.fixture(scope="session")
def imported() -> None:
    """Import once what runs in this process import late: pytester forgets what they imported."""
    for module in LATE:
        importlib.import_module(module)
    with (
        running(stub.StubServer()) as server,
        openai.OpenAI(base_url=server.base_url, api_key="x") as client,
    ):
        list(client.chat.completions.create(model="m", messages=[], stream=True))


@pytest.fixture
def project(
    imported: None,  # noqa: ARG001 - before the project's own runs
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Project:
    """A project in which three gates judge a fake server, over three conversations.

    One gate is a shipped one, one asks like a user's own, and one compares with goldens that are
    recorded here.
    """
    shipped = tmp_path_factory.mktemp("shipped")
    for name in ("gates", "conversations"):
        (shipped / name).mkdir()
    shutil.copy(verdict_gates.GATES / "test_boot.py", shipped / "gates")
    shutil.copy(EXAMPLES / "streaming.py", shipped / "gates" / "test_streaming.py")
    (shipped / "gates" / "test_words.py").write_text(GOLDEN_GATE)
    for name in CONVERSATIONS:
        shutil.copy(conversation.SHIPPED / f"{name}.toml", shipped / "conversations")
    monkeypatch.setattr(verdict_gates, "GATES", shipped / "gates")
    monkeypatch.setattr(conversation, "SHIPPED", shipped / "conversations")
    for entry in conversation.load_all(shipped / "nowhere"):
        parts = {"messages": json.dumps(entry.messages).encode()}
        path = shipped / "golden" / "qwen3.5" / "main" / "miniature" / f"{entry.name}.txt"
        write_whole(path, lock_golden(entry.title, parts))
    monkeypatch.setattr(golden_folders, "shipped_root", lambda: shipped / "golden")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    pytester.makeini("[pytest]\n")
    found = Project(pytester)
    found.lane()
    return found
