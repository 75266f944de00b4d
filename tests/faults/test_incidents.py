"""Five incidents of a real server, each replayed from its folder with and without the fault.

Each incident is moved into an empty project, and nothing is left of its first project.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import jsonschema
import pytest
from e2e import gates, own_lane

from faults import prompt_edits, reasoning, tools
from faults.conversations import SHORT
from faults.proxy import Proxy
from pytest_vllm_gates.client import http
from pytest_vllm_gates.incidents.read import IncidentFolder, read
from pytest_vllm_gates.incidents.types import NAME, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.served import Served

    from faults.fault import Fault
    from faults.upstream import Upstream

pytestmark = pytest.mark.real

HERE = Path(__file__).parent
LEAK = next(fault for fault in reasoning.FAULTS.all if fault.name == "thinks_aloud")
CALL = next(fault for fault in tools.FAULTS.all if fault.name == "calls_a_tool_nobody_declared")
EDIT = prompt_edits.one_newline_more


class Field:
    """Two projects: one with a fault, and an empty one with only the incident."""

    def __init__(self, folder: Path, key: str) -> None:
        self.project = folder / "project"
        self.empty = folder / "empty"
        self.project.mkdir()
        self.empty.mkdir()
        self.env = {"OPENAI_API_KEY": key}

    def fails(self, gate: str, check: str, *arguments: str) -> IncidentFolder:
        """Run the gates with the fault; return the check's incident and remove the rest."""
        gates_run = gates.run(self.project, *arguments, env=self.env)
        incidents = {
            incident["test"].partition("[")[0]: incident
            for incident in gates_run.verdict["incidents"]
        }
        assert incidents.get(f"test_{check}", {}).get("gate") == gate, gates_run.output
        folder = self.project / "report" / incidents[f"test_{check}"]["path"]
        moved_folder = shutil.move(folder, self.empty / "incident")
        shutil.rmtree(self.project)
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        jsonschema.validate(
            json.loads((Path(moved_folder) / NAME).read_text(encoding="utf-8")), schema
        )
        return read(Path(moved_folder))

    def replay(self, *arguments: str) -> tuple[dict[str, Any], gates.GatesRun]:
        """Send the incident again in the empty project."""
        gates_run = gates.run(
            self.empty, "--repro", "incident", *arguments, env=self.env, model=None
        )
        replayed = gates_run.verdict["repro"]
        assert f"incident: {replayed['answer']}" in gates_run.output, gates_run.output
        assert gates_run.status == (replayed["answer"] != "NOT REPRODUCED"), gates_run.output
        return replayed, gates_run


@pytest.fixture
def field(tmp_path: Path) -> Field:
    return Field(tmp_path, "")


@pytest.fixture
def upstream_field(tmp_path: Path, upstream: Upstream) -> Field:
    """The same, with the key of the real server."""
    return Field(tmp_path, upstream.key or "")


@contextlib.contextmanager
def behind(upstream: Upstream, fault: Fault | None = None) -> Iterator[str]:
    """The real server behind a proxy with this fault."""
    request, reply = (fault.request, fault.reply) if fault else (None, None)
    with Proxy(upstream, request=request, reply=reply) as proxy:
        yield proxy.base_url


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(LEAK, id="a reasoning leak"),
        pytest.param(CALL, id="a wrong tool call", marks=pytest.mark.slow),
    ],
)
def test_wrong_answers_are_replayed(
    fault: Fault, upstream_field: Field, upstream: Upstream
) -> None:
    gate = str(fault.gate)
    with behind(upstream, fault) as url:
        incident_folder = upstream_field.fails(
            gate, fault.check, "--base-url", url, *SHORT, "-m", gate
        )
        assert incident_folder.incident.walk
        assert incident_folder.incident.case in [
            ", ".join(f"{name} {value}" for name, value in cell.cell.items())
            for cell in incident_folder.incident.walk.cells
        ]
        replayed, gates_run = upstream_field.replay("--base-url", url, "--times", "3")
        assert (replayed["answer"], replayed["reproduced"]) == ("REPRODUCED", 3), gates_run.output
        assert fault.says in replayed["attempts"][0]["says"]
        compared = replayed["attempts"][0]["responses"]
        assert len(compared) == len(incident_folder.incident.sends)
        assert all(compared_response["same"] for compared_response in compared), gates_run.output
    with behind(upstream) as url:
        replayed, gates_run = upstream_field.replay("--base-url", url)
        assert replayed["answer"] == "NOT REPRODUCED", gates_run.output
        assert not all(response["same"] for response in replayed["attempts"][0]["responses"])


@pytest.mark.slow
def test_edited_template_is_replayed(
    upstream_field: Field, upstream: Upstream, shared: Served
) -> None:
    weights = upstream_field.project / "weights" / "miniature"
    shutil.copytree(shared.checkpoint.source, weights)
    EDIT(weights)
    with behind(upstream) as url:
        incident_folder = upstream_field.fails(
            "chat_template", "prompt_is_the_recorded", "--base-url", url,
            "--checkpoint", str(weights), "-m", "chat_template",
        )  # fmt: skip
    assert not Path(incident_folder.incident.checkpoint.source).exists()
    # Only the folder is named: this machine's lane boots, with the incident's own template.
    replayed, gates_run = upstream_field.replay()
    assert replayed["answer"] == "REPRODUCED", gates_run.output
    assert "prompt files are the incident's, weights are the miniature's" in replayed["notes"][-1]
    with behind(upstream) as url:
        replayed, gates_run = upstream_field.replay("--base-url", url, "--checkpoint", "miniature")
    assert replayed["answer"] == "NOT REPRODUCED", gates_run.output


def test_dying_engine_is_replayed(field: Field, shared: Served) -> None:
    dying = {"middleware": "dying_app.Dying"}
    own_lane.write(field.project, "dying", env={"PYTHONPATH": str(HERE)}, serve=dying)
    lane = (field.project / "lanes" / "dying.toml").read_text(encoding="utf-8")
    incident_folder = field.fails("boot", "answers_sensibly", "--lane", "dying", "-m", "boot")
    assert incident_folder.incident.says.startswith("the server died while serving"), (
        incident_folder.incident.says
    )
    assert incident_folder.incident.signature and incident_folder.incident.signature["id"]
    assert incident_folder.text("metrics-before.txt")
    log = gzip.decompress((incident_folder.folder / "log.txt.gz").read_bytes()).decode()
    assert "EngineDeadError" in log

    # A command that could run anything is booted from an incident only on request.
    with gates.start(field.empty, "--repro", "incident", model=None) as process:
        output = process.communicate()[0]
    assert process.returncode == pytest.ExitCode.USAGE_ERROR
    assert "env PYTHONPATH" in output and "serve middleware" in output
    (field.empty / "lanes").mkdir()
    (field.empty / "lanes" / "dying.toml").write_text(lane, encoding="utf-8")
    replayed, gates_run = field.replay()
    assert replayed["answer"] == "REPRODUCED", gates_run.output
    field.env["OPENAI_API_KEY"] = shared.endpoint.api_key or ""
    replayed, gates_run = field.replay("--base-url", shared.endpoint.base_url)
    assert replayed["answer"] == "NOT REPRODUCED", gates_run.output


@pytest.mark.slow
def test_stalling_streams_are_replayed(tmp_path: Path, spoiling: Callable[[], Served]) -> None:
    endpoint = spoiling().endpoint
    field = Field(tmp_path, endpoint.api_key or "")
    field.project.joinpath("lanes").mkdir()
    field.project.joinpath("lanes/spoilt.toml").write_text(
        f'title = "the server that spoils"\nbase_url = "{endpoint.base_url}"\n'
        "batch_invariant = true\n[load]\nrequests = 24\n"
        "[load.limits]\nttft_p95_s = 30.0\nitl_p95_s = 2.0\n",
        encoding="utf-8",
    )
    http.post(endpoint, "/spoil?stalls", {}).raise_for_status()
    try:
        incident_folder = field.fails(
            "load", "no_stream_stops_while_others_go_on", "--lane", "spoilt",
            "--checkpoint", "miniature", "-m", "load",
        )  # fmt: skip
        streams = [
            incident_folder.sent(send)
            for send in incident_folder.incident.sends
            if "load" in send.name
        ]
        gaps = [
            later[0] - earlier[0]
            for stream in streams
            for earlier, later in zip(stream.pieces, stream.pieces[1:], strict=False)
        ]
        assert max(gaps) > 2.5, "the stream that stalled is not among those that were kept"
        replayed, gates_run = field.replay("--base-url", endpoint.base_url)
        assert replayed["answer"] == "REPRODUCED", gates_run.output
    finally:
        with contextlib.suppress(httpx.HTTPError):
            http.post(endpoint, "/spoil", {})
    replayed, gates_run = field.replay("--base-url", endpoint.base_url)
    assert replayed["answer"] == "NOT REPRODUCED", gates_run.output
