"""Gathers the contents of a failed test's incident while its server still runs."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import __version__
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.limits import TOML_BYTES
from pytest_vllm_gates.catalog import flags
from pytest_vllm_gates.client.tape import BOOT, WALK
from pytest_vllm_gates.incidents import same_server, types as incidents_types
from pytest_vllm_gates.redaction.shown import redacted
from pytest_vllm_gates.report.environment import machine_document
from pytest_vllm_gates.session import commands
from pytest_vllm_gates.session.items import findings_key, gate_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_vllm_gates.client.answer import Exchange
    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.conversations.walk import WalkResult
    from pytest_vllm_gates.incidents.types import CellSends, Incident, RecordedWalk
    from pytest_vllm_gates.outcomes import Finding
    from pytest_vllm_gates.server.types import Failure
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.launch import Launch
    from pytest_vllm_gates.session.run import Run, Subject

FOLDER = "incidents"
WRONG_CELLS = 8
"""Cells of a walk that are kept: enough to show a fault, and replayed within a second."""
SENDS_BYTES = 40 * 2**20
VERSION = "/version"


def folder(run: Run) -> Path:
    """Return the folder of a run's incidents: with its report, else beside the project's files."""
    return (run.options.report_dir or run.options.rootdir) / FOLDER


class IncidentContents:
    """The contents of an incident: `incident()` fills `sends` and `files` as well."""

    def __init__(self, item: pytest.Item, run: Run, subject: Subject, says: str) -> None:
        self._item = item
        self._run = run
        self._subject = subject
        self._gate = gate_of(item)
        self._test = item.nodeid.rpartition("::")[2]
        self._says = says
        self._fixtures: dict[str, Any] = getattr(item, "funcargs", {})
        findings = item.stash.get(findings_key, None)
        self._findings: Sequence[Finding] = findings.new if findings else ()
        self._cut: list[str] = []
        self._cells: list[CellSends] = []
        self.files: dict[str, bytes] = {}
        self.sends: list[Sent] = []

    def incident(self) -> Incident:
        """Return the contents of incident.json; fills `sends` and `files`."""
        from pytest_vllm_gates.incidents import parts as incidents_parts  # noqa: PLC0415

        run, subject = self._run, self._subject
        boot = run.boots.get(subject.family.name)
        endpoint = boot.endpoint if boot else None
        self._gather_sends()
        self._gather_files()
        launch: Launch | None = self._fixtures.get("launch")
        gone: Failure | None = launch.gone if launch else None
        failure = gone or (boot.failure if boot else None)
        explanation = failure.explanation if failure else None
        conversation = self._params.get("conversation", self._params.get("question"))
        lane, checkpoint, booted = run.lane, subject.checkpoint, run.lane.base_url is None
        return incidents_types.Incident(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            tool={"name": "pytest-vllm-gates", "version": __version__},
            family=subject.family.name,
            model=endpoint.model if endpoint else "",
            checkpoint=incidents_types.ServedCheckpoint(
                name=checkpoint.name, source=checkpoint.source, revision=checkpoint.revision
            ),
            lane=incidents_types.ServedLane(
                name=lane.name,
                title=lane.title,
                form=lane.form,
                base_url=lane.base_url,
                env=redacted(lane.env),
                serve=lane.serve,
                overlay=tuple(f"{repair.name}: {repair.summary}" for repair in run.repairs),
                batch_invariant=lane.batch_invariant,
                load=lane.load,
                throughput=lane.throughput,
            ),
            flags=flags.serving(subject.family, checkpoint, lane) if booted else None,
            variables=redacted(same_server.variables(lane)) if booted else None,
            renderer=run.renderer_is_enough(subject) if booted else None,
            trace=run.options.trace.name if run.options.trace else None,
            measure=incidents_types.Measure(
                answer_tokens=run.options.answer_tokens,
                samples=run.options.samples,
                soak_s=run.options.soak_s,
                ramp=run.options.ramp,
            ),
            gate=self._gate,
            test=self._test,
            case=self._findings[0].case.name if self._findings else None,
            says=self._says,
            findings=tuple(
                incidents_types.RecordedFinding(case=finding.case.name, says=finding.says)
                for finding in self._findings
            ),
            signature=explanation.document() if explanation else None,
            machine=machine_document(run.machine),
            versions=dict(run.versions),
            inventory=dict(run.inventory),
            seeds=incidents_parts.seeds(self.sends),
            walk=self._walk(),
            conversation=conversation.model_dump(mode="json") if conversation else None,
            cut=tuple(self._cut),
            command=commands.of_incident(run, self._item, folder(run)),
        )

    @property
    def _params(self) -> dict[str, Any]:
        callspec = getattr(self._item, "callspec", None)
        return callspec.params if callspec else {}

    def _walk(self) -> RecordedWalk | None:
        from pytest_vllm_gates.incidents.types import RecordedWalk  # noqa: PLC0415

        if not self._cells:
            return None
        walked: WalkResult = self._fixtures["walked"]
        return RecordedWalk(max_tokens=walked.max_tokens, cells=tuple(self._cells))

    def _gather_sends(self) -> None:
        """Take the requests that judging needs from the tape.

        The wrong cells of the walk, requests of other wrong cases, and this test's own requests.
        If there are none, it takes all requests of its gate, or the boot's.
        """
        from dataclasses import replace  # noqa: PLC0415

        from pytest_vllm_gates.incidents import parts as incidents_parts  # noqa: PLC0415

        tape = self._run.tapes.get(self._subject.family.name)
        if tape is None:
            return
        walked: WalkResult | None = self._fixtures.get("walked")
        requests_sent = self._walked_sends(walked, tape.of(WALK)) if walked else []
        if not requests_sent:
            requests_sent = tape.of(self._item.nodeid)
            requests = [finding.case.request for finding in self._findings if finding.case.request]
            case_sends = incidents_parts.answering(tape.of(), requests)
            requests_sent += [sent for sent in case_sends if sent not in requests_sent]
        # Every check requests the version, to find the known defects.
        if all(sent.path == VERSION for sent in requests_sent):
            file = self._item.nodeid.partition("::")[0]
            parts = [part for part in tape.parts() if part.partition("::")[0] == file]
            requests_sent = (tape.of(*parts) if parts else []) or tape.of(BOOT)
        kept_sends = incidents_parts.within(requests_sent, SENDS_BYTES)
        if len(kept_sends) < len(requests_sent):
            self._cut.append(
                f"{len(requests_sent) - len(kept_sends)} of {len(requests_sent)} requests "
                "were not kept"
            )
        self.sends = [
            sent if sent.name else replace(sent, name=str(number))
            for number, sent in enumerate(kept_sends, 1)
        ]

    def _walked_sends(self, walked: WalkResult, tape: Sequence[Sent]) -> list[Sent]:
        """Return the sends of the cells that judging needs, named, and note the cells."""
        from dataclasses import replace  # noqa: PLC0415

        from pytest_vllm_gates.incidents import parts as incidents_parts  # noqa: PLC0415
        from pytest_vllm_gates.incidents.types import CellSends  # noqa: PLC0415

        sends: dict[str, Sent] = {}
        size = 0
        for number, exchange in enumerate(self._telling(walked), 1):
            variants = _variants(incidents_parts.answering(tape, [exchange.request]))
            size += sum(variant.size for variant in variants.values())
            if "whole" not in variants or size > SENDS_BYTES:
                self._cut.append(f"the cell {exchange.cell.name} was not kept")
                continue
            names = {variant: f"{number}-{variant}" for variant in variants}
            sends |= {
                names[variant]: replace(sent, name=names[variant])
                for variant, sent in variants.items()
            }
            self._cells.append(
                CellSends(
                    cell=exchange.cell.traits,
                    asked=exchange.asked,
                    thinks=exchange.thinks,
                    stop=exchange.stop,
                    unstopped=self._unstopped(exchange),
                    **names,
                )
            )
        return list(sends.values())

    def _telling(self, walked: WalkResult) -> list[Exchange]:
        """Return the first cells that were wrong, and those with which they are compared.

        Cells without a stop come first, because the others name them. If no finding names a cell,
        all cells are returned.
        """
        wrong = {finding.case.name for finding in self._findings}
        judged = [exchange for exchange in walked.answered if exchange.cell.name in wrong]
        if len(judged) > WRONG_CELLS:
            self._cut.append(f"{len(judged)} cells were wrong; the first {WRONG_CELLS} are kept")
            judged = judged[:WRONG_CELLS]
            case_names = {exchange.cell.name for exchange in judged}
            self._findings = [
                finding for finding in self._findings if finding.case.name in case_names
            ]
        judged = judged or list(walked.answered)
        plain = {exchange.cell: exchange for exchange in walked.answered}
        compared = [
            plain[exchange.cell.unstopped]
            for exchange in judged
            if exchange.cell.unstopped in plain
        ]
        thought = [
            exchange for exchange in walked.answered if exchange.whole is walked.plain_thought
        ]
        by_cell = {exchange.cell: exchange for exchange in (*judged, *compared, *thought)}
        return sorted(by_cell.values(), key=lambda exchange: exchange.stop is not None)

    def _unstopped(self, exchange: Exchange) -> str | None:
        if exchange.stop is None:
            return None
        without = exchange.cell.unstopped.traits
        return next((cell.whole for cell in self._cells if cell.cell == without), None)

    def _gather_files(self) -> None:
        """Take logs, metrics, goldens and files of this project, as far as they exist."""
        from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve  # noqa: PLC0415
        from pytest_vllm_gates.incidents import parts as incidents_parts  # noqa: PLC0415

        run, subject = self._run, self._subject
        boot = run.boots.get(subject.family.name)
        log = Path(boot.evidence["log"]) if boot and "log" in boot.evidence else None
        if log and log.is_file():
            self.files[incidents_types.LOG], cut = incidents_parts.log(log)
            self._cut += [cut] if cut else []
            self.files[incidents_types.EXCERPT] = incidents_parts.excerpt(log).encode()
        if before := run.metrics.get(subject.family.name):
            self.files[incidents_types.METRICS_BEFORE] = before.encode()
        if boot and boot.endpoint and (after := incidents_parts.metrics(boot.endpoint)):
            self.files[incidents_types.METRICS_AFTER] = after.encode()
        if run.lane.base_url is None and run.options.rootdir in run.lane.file.parents:
            self.files[incidents_types.LANE] = bounded_read.data(run.lane.file, TOML_BYTES)
        golden: Goldens | None = self._fixtures.get("golden")
        for path in golden.own_used if golden else ():
            self.files[f"{incidents_types.EXPECTED}/{path.name}"] = path.read_bytes()
        rules = incidents_types.load()
        if self._gate in rules.above_the_weights:
            prompts = incidents_parts.prompts_of(
                subject.checkpoint,
                checkpoints_resolve.miniature(subject.family),
                whole=self._gate in rules.without_weights,
            )
            self.files |= {
                f"{incidents_types.PROMPT_FILES}/{name}": data for name, data in prompts.items()
            }


def _variants(sends: Sequence[Sent]) -> dict[str, Sent]:
    """Return the sends of one cell by the kind of answer: whole, streamed, in wide deltas."""
    from pytest_vllm_gates.incidents import parts as incidents_parts  # noqa: PLC0415

    variants: dict[str, Sent] = {}
    for send in sends:
        body = incidents_parts.body_of(send)
        variant = "whole" if not body.get("stream") else "streamed"
        variants.setdefault("widened" if "stream_interval" in body else variant, send)
    return variants
