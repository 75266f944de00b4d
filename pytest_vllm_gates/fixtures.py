"""The fixtures gates are written with."""

from __future__ import annotations

import contextlib
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates import keeping
from pytest_vllm_gates.evidence import Evidence
from pytest_vllm_gates.facts.errors import UserError
from pytest_vllm_gates.facts.launch import Failure
from pytest_vllm_gates.facts.outcome import Blocked, Inconclusive, NotApplicable
from pytest_vllm_gates.gate_items import evidence_key, own_gate_of, run_key
from pytest_vllm_gates.launching import Launch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

    from pytest_vllm_gates.drive.chat import Chat
    from pytest_vllm_gates.drive.reference import Reference
    from pytest_vllm_gates.facts.conversation import Conversation
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.facts.lane import Lane
    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.goldens import Goldens
    from pytest_vllm_gates.judge.numerics import Tolerance
    from pytest_vllm_gates.replays import Attempt
    from pytest_vllm_gates.report.progress import Progress
    from pytest_vllm_gates.run import Run, Subject

TRIVIAL = "plain"


@pytest.fixture(scope="session")
def _run(request: pytest.FixtureRequest) -> Run:
    return request.config.stash[run_key]


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    """The family under judgement with its checkpoint; one after the other in a run."""
    found: Subject = request.param
    return found


@pytest.fixture(scope="session")
def family(subject: Subject) -> Family:
    """The family under judgement."""
    return subject.family


@pytest.fixture(scope="session")
def lane(_run: Run) -> Lane:
    """The bundle under judgement."""
    return _run.lane


@pytest.fixture(scope="session")
def gates_progress(request: pytest.FixtureRequest) -> Iterator[Progress]:
    """Where long waits are shown, whatever pytest captures."""
    progress = progress_of(request.config)
    yield progress
    progress.done()


def progress_of(config: pytest.Config) -> Progress:
    """Return where long waits are shown, whatever pytest captures."""
    from pytest_vllm_gates.report.progress import Progress  # noqa: PLC0415

    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    terminal = bool(reporter and reporter.isatty)

    def write(text: str) -> None:
        if reporter is None or capture is None:
            return
        with capture.global_and_fixture_disabled():
            if not text.startswith("\r"):
                reporter.ensure_newline()
            reporter.write(text, flush=True)

    return Progress(write, terminal=terminal)


@pytest.fixture(scope="session")
def launch(
    _run: Run,
    subject: Subject,
    gates_progress: Progress,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Launch]:
    """Boot the family's server once for all gates; a failure is returned, not raised."""
    from pytest_vllm_gates import booting  # noqa: PLC0415 - heavy

    folder = _run.options.report_dir or tmp_path_factory.mktemp("server")
    on_log = gates_progress.print if _run.options.verbose else None
    preloading = threading.Thread(target=_preload, args=[request.session.items])
    preloading.start()
    try:
        boot, server = booting.boot(_run, subject, folder, gates_progress, on_log)
    finally:
        # Two threads at once import transformers in pieces: its names come lazily.
        preloading.join()
    gates_progress.done()
    for line in keeping.lines(subject, boot):
        gates_progress.print(f"{line}\n")
    started = Launch(boot, server)
    yield started
    started.release()


def _preload(items: list[pytest.Item]) -> None:
    """Import, while a server starts, what its tests will take seconds to import."""
    wanted = {name for item in items for name in getattr(item, "fixturenames", ())}
    if "chat" in wanted:
        import_module("pytest_vllm_gates.drive.chat")
    if "prompt_files" in wanted:
        from pytest_vllm_gates.drive import reference  # noqa: PLC0415 - heavy

        with contextlib.suppress(ImportError):  # whoever needs it says so
            reference.preload()


@pytest.fixture
def server(launch: Launch, request: pytest.FixtureRequest) -> Endpoint:
    """Where the family is served. A test that needs it is BLOCKED when it is not."""
    endpoint = launch.endpoint()
    if death := launch.death():
        pytest.fail(f"{death.explain()}\n(noticed before {request.node.name})", pytrace=False)
    return endpoint


@pytest.fixture
def chat(server: Endpoint, family: Family) -> Iterator[Chat]:
    """Ask the served family as its users do."""
    from pytest_vllm_gates.drive.chat import Chat  # noqa: PLC0415

    asked = Chat(server, family)
    yield asked
    asked.client.close()


@pytest.fixture
def version(server: Endpoint) -> str | None:
    """The version of vLLM that answers, where it says so."""
    from pytest_vllm_gates.drive import http  # noqa: PLC0415

    return http.version(server)


@pytest.fixture(scope="session")
def prompt_files(
    serve: dict[str, Any], subject: Subject, request: pytest.FixtureRequest
) -> Iterator[Reference | Failure]:
    """What renders the checkpoint's prompts, or why nothing can; one gate judges that.

    BLOCKED where a running server does not say what it serves: no file is to be blamed for that.
    """
    from pytest_vllm_gates.drive.checkpoints import UNKNOWN  # noqa: PLC0415
    from pytest_vllm_gates.drive.encoder import Encoder  # noqa: PLC0415
    from pytest_vllm_gates.drive.reference import Reference  # noqa: PLC0415

    if subject.checkpoint.name == UNKNOWN and subject.checkpoint.folder is None:
        raise Blocked("the server does not say which checkpoint it serves; name it: --checkpoint")
    encoder, module = None, subject.family.prompt.encoder
    if module:
        python: Path | None = request.getfixturevalue("interpreter")
        if python is None:
            request.getfixturevalue("launch").endpoint()
            raise Inconclusive(
                f"{subject.family.name} has no template: {module} of the lane's vLLM writes its "
                "prompts, and this lane's interpreter is not at hand; name a lane with a lock or "
                "a python (--lane)"
            )
    try:
        encoder = Encoder(module, python, serve) if module and python else None
        found: Reference | Failure = Reference(subject.checkpoint, serve, encoder)
    except UserError as error:
        found = Failure(str(error))
    yield found
    if encoder:
        encoder.close()


@pytest.fixture(scope="session")
def reference(prompt_files: Reference | Failure) -> Reference:
    """Render with the checkpoint's own template and tokenizer; BLOCKED where they are no use."""
    if isinstance(prompt_files, Failure):
        raise Blocked(prompt_files.what.splitlines()[0])
    return prompt_files


@pytest.fixture(scope="session")
def serve(_run: Run, subject: Subject) -> dict[str, Any]:
    """The flags that say how the checkpoint is served."""
    from pytest_vllm_gates.drive import flags  # noqa: PLC0415

    return flags.serving(subject.family, subject.checkpoint, _run.lane)


@pytest.fixture(scope="session")
def tolerance(subject: Subject) -> Tolerance:
    """How far the probabilities of this checkpoint's dtype may be from those of fp32."""
    from pytest_vllm_gates.drive import logprobs  # noqa: PLC0415
    from pytest_vllm_gates.judge import numerics  # noqa: PLC0415

    return numerics.tolerance(logprobs.dtype(subject.checkpoint))


@pytest.fixture
def conversation(request: pytest.FixtureRequest, family: Family) -> Conversation:
    """One conversation after the other, of those the family can have at all."""
    return _fits(request.param, family)


@pytest.fixture
def question(request: pytest.FixtureRequest, family: Family) -> Conversation:
    """One conversation after the other, of those a gate may ask a completion for."""
    return _fits(request.param, family)


def _fits(conversation: Conversation, family: Family) -> Conversation:
    if reason := conversation.why_not(family):
        raise NotApplicable(reason)
    return conversation


@pytest.fixture(scope="session")
def fitting(_run: Run, family: Family) -> tuple[Conversation, ...]:
    """All conversations the family can have."""
    return tuple(one for one in _run.conversations if not one.why_not(family))


@pytest.fixture(scope="session")
def interpreter(_run: Run, launch: Launch) -> Path | None:
    """The lane's own Python, where this machine has it."""
    del launch  # made the environment, where there is one to make
    return _run.environment.python if _run.environment else None


@pytest.fixture(scope="session")
def overlay(_run: Run) -> Path | None:
    """The lane's overlay folder, where one is used."""
    return _run.overlay


@pytest.fixture
def trivial(_run: Run) -> Conversation:
    """The plainest of the conversations."""
    return next(one for one in _run.conversations if one.name == TRIVIAL)


@pytest.fixture
def versions(_run: Run) -> dict[str, str]:
    """Return every package of the lane's environment, empty where it cannot be seen."""
    return _run.versions


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """What this test saw: write it down before asserting. Goes to the verdict and to JUnit."""
    found = Evidence(request.node)
    request.node.stash[evidence_key] = found
    return found


@pytest.fixture
def golden(
    snapshot: SnapshotAssertion,
    _run: Run,
    subject: Subject,
    _incident: Attempt | None,
    request: pytest.FixtureRequest,
) -> Goldens:
    """Compare with what was recorded for this family and checkpoint, or record it."""
    from pytest_vllm_gates.goldens import Goldens  # noqa: PLC0415

    kept = _incident.expected(subject.checkpoint.name) if _incident else None
    return Goldens(snapshot, _run, subject, own_gate_of(request.node), kept)
