"""Kept servers of `--keep-server`: finds one for a boot, or boots one to keep."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import WriteError, copy_whole
from pytest_vllm_gates.server.types import KEPT, Boot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_vllm_gates.environment.environment import Environment
    from pytest_vllm_gates.server.kept.process import KeptProcess
    from pytest_vllm_gates.server.kept.record import KeptRecord
    from pytest_vllm_gates.server.kept.registry import KeptEntry
    from pytest_vllm_gates.server.launch import Explain, LaunchPlan, Server
    from pytest_vllm_gates.session.run import Subject


@dataclass
class ServerKeeping:
    """One boot of a run that keeps its server."""

    plan: LaunchPlan
    idle_s: float
    root: Path
    fingerprint: dict[str, str]
    explain: Explain
    passed_over: list[str] = field(default_factory=list)
    """Kept servers of this family and lane that are not used, each with the reason."""
    problem: str = ""
    """A file of the kept server that could not be written; empty if all were."""

    @classmethod
    def of(
        cls, plan: LaunchPlan, environment: Environment, idle_s: float, explain: Explain
    ) -> ServerKeeping:
        """Return it; raises `UserError` if keys would not be safe."""
        from pytest_vllm_gates.server import key_demand, launch  # noqa: PLC0415
        from pytest_vllm_gates.server.kept import registry as kept_registry  # noqa: PLC0415 - only where it is asked
        from pytest_vllm_gates.server.kept.fingerprint import fingerprint  # noqa: PLC0415

        if key_demand.possible(plan.lane, launch.environment(plan, "")):
            plan = dataclasses.replace(plan, demands_key=True)
        return cls(plan, idle_s, kept_registry.open_root(), fingerprint(plan, environment), explain)

    def find(self) -> tuple[Server, KeptRecord] | None:
        """Return the kept server with this fingerprint, attached; None if there is none."""
        from pytest_vllm_gates.server.kept import registry as kept_registry  # noqa: PLC0415
        from pytest_vllm_gates.server.kept.record import differences, shortened  # noqa: PLC0415
        from pytest_vllm_gates.server.kept.registry import KeptState  # noqa: PLC0415

        differ = []
        for entry in [*kept_registry.entries(self.root)]:
            if entry.state is KeptState.UNREADABLE:
                kept_registry.clear(entry)
            record = entry.record
            if record is None or (record.family, record.lane) != (
                self.plan.family.name,
                self.plan.lane.name,
            ):
                continue
            if entry.state in (KeptState.DIED, KeptState.LOST):
                self.passed_over.append(self._buried(entry))
            elif differing := [*differences(record.fingerprint, self.fingerprint)]:
                differ.append(f"{entry.name} differs in {shortened(differing)}")
            elif entry.state is not KeptState.IDLE:
                self.passed_over.append(f"{entry.name} is {entry.state}")
            elif server := self._attach(entry, record):
                return server, record
        self.passed_over += differ
        return None

    def _attach(self, entry: KeptEntry, record: KeptRecord) -> Server | None:
        from pytest_vllm_gates.client import ready as client_ready  # noqa: PLC0415
        from pytest_vllm_gates.server import launch, ready  # noqa: PLC0415
        from pytest_vllm_gates.server.kept import registry as kept_registry  # noqa: PLC0415
        from pytest_vllm_gates.server.kept.process import KeptProcess  # noqa: PLC0415

        begun, hold = time.monotonic(), entry.hold
        try:
            key = kept_registry.key(entry)
            self.plan.redactor.learn(key)
            plan = self.plan
            endpoint = Endpoint(record.base_url, record.model, key, plan.tape, plan.bounds)
            boot_times, _ = record.boot_times, record.booted_at
        except UserError as error:
            self.passed_over.append(f"{entry.name} is not used: {error}")
            return None
        if not hold.acquire():
            self.passed_over.append(f"{entry.name} is in use by another run")
            return None
        try:
            process = KeptProcess.of(entry.folder, hold, record, self.plan.folder / "server.log")
        except OSError as error:
            hold.release()
            self.passed_over.append(f"{entry.name} is not used: its log cannot be linked: {error}")
            return None
        try:
            # First, before the key and prompts are sent: another program may have the port now.
            if process.poll() is None and record.listens and not process.listens(record.port):
                raise client_ready.NotServing(f"it no longer has port {record.port}")  # noqa: TRY301
            if process.poll() is not None or not ready.healthy(endpoint):
                raise client_ready.NotServing("it is no longer healthy")  # noqa: TRY301
            if record.renderer:
                ready.first_rendering(endpoint, self.plan.limits.stall_s)
            else:
                pools = self.plan.family.pooling is not None
                ready.first_answer(endpoint, self.plan.limits.stall_s, pools=pools)
        except client_ready.NotServing as error:
            process.stop()
            self.passed_over.append(f"{entry.name} was ended: {error}")
            return None
        except BaseException:
            process.release()
            raise
        try:
            hold.idle_limit_s = self.idle_s
        except OSError as error:
            self.problem = f"the idle limit of {entry.name} stays as it was: {error}"
        keeping = {
            "name": entry.name,
            "attached": True,
            "booted": record.booted,
            "attach_s": round(time.monotonic() - begun, 3),
            "passed_over": self.passed_over,
        }
        evidence = {**record.evidence, "log": str(process.log), KEPT: keeping}
        boot = Boot(endpoint=endpoint, times=boot_times, evidence=evidence)
        return launch.Server(self.plan, lambda _: None, explain=self.explain, taken=(boot, process))

    def boot(
        self,
        progress: Callable[[str], None],
        on_log: Callable[[str], None] | None,
        more: dict[str, Any],
        inventory: dict[str, Any],
    ) -> Server:
        """Boot a server and keep it, if it serves; `more` is evidence of its boot."""
        from pytest_vllm_gates.server import key_demand, launch  # noqa: PLC0415
        from pytest_vllm_gates.server.kept import registry as kept_registry  # noqa: PLC0415
        from pytest_vllm_gates.server.kept.hold import Hold  # noqa: PLC0415
        from pytest_vllm_gates.server.kept.process import KeptProcess  # noqa: PLC0415

        try:
            folder = kept_registry.create_folder(self.root)
            hold = Hold(folder)
            try:
                hold.acquire()
                hold.idle_limit_s = self.idle_s
            except OSError:
                hold.release()
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:
            self.problem = f"the server is not kept: {WriteError.of(self.root, error)}"
            server = launch.Server(self.plan, progress, on_log, self.explain)
            server.boot.evidence.update(more)
            return server

        def start(*arguments: Any, **options: Any) -> KeptProcess:
            return KeptProcess.start(folder, hold, *arguments, **options)

        server = launch.Server(self.plan, progress, on_log, self.explain, start=start)
        server.boot.evidence.update(more)
        process, endpoint = server.process, server.boot.endpoint
        if endpoint is None or not isinstance(process, KeptProcess):
            return server
        try:
            process.keep(self._record(server.boot, process, inventory), endpoint.api_key or "")
        except OSError as error:
            self.problem = f"the server is not kept: {error}"
            return server
        except BaseException:
            process.stop()
            raise
        server.boot.evidence[KEPT] = {
            "name": folder.name,
            "attached": False,
            "idle_limit_s": self.idle_s,
            "passed_over": self.passed_over,
            "open_routes": key_demand.open_routes(endpoint),
        }
        return server

    def _record(self, boot: Boot, process: KeptProcess, inventory: dict[str, Any]) -> KeptRecord:
        from pytest_vllm_gates.server.kept import registry as kept_registry  # noqa: PLC0415
        from pytest_vllm_gates.server.kept.record import KeptRecord  # noqa: PLC0415

        plan, endpoint = self.plan, boot.endpoint
        assert endpoint and boot.times  # noqa: S101 - it serves
        record = KeptRecord(
            name=process.folder.name,
            family=plan.family.name,
            lane=plan.lane.name,
            checkpoint=plan.checkpoint.name,
            base_url=endpoint.base_url,
            model=endpoint.model,
            renderer=plan.renderer,
            server=process.server,
            keeper=process.keeper,
            tree=process.tree(),
            host=kept_registry.this_host(),
            booted=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            times=dataclasses.asdict(boot.times),
            evidence={**boot.evidence, "log": str(process.original)},
            inventory=inventory,
            fingerprint=self.fingerprint,
        )
        return record.model_copy(update={"listens": process.listens(record.port)})

    def _buried(self, entry: KeptEntry) -> str:
        """Clear away a server that has ended by itself, with its log in this run's folder."""
        from pytest_vllm_gates.server.kept import registry as kept_registry  # noqa: PLC0415
        from pytest_vllm_gates.server.kept.process import read_ending  # noqa: PLC0415

        assert entry.record  # noqa: S101 - or nothing is known of it
        ending, status = f"{entry.name}: {entry.state}", read_ending(entry.folder)
        log = kept_registry.log_of(entry)
        if log and status:
            copy = self.plan.folder / f"kept-{entry.name}.log"
            failure = self.explain(log, status[0])
            ending = f"{entry.name} died while it was kept (exit status {status[0]})"
            ending += f": {failure.brief}" if failure and failure.brief else ""
            try:
                copy_whole(log, copy)
            except WriteError as error:
                ending += f"; its log is lost: {error}"
            else:
                ending += f"; its log: {copy}"
        kept_registry.clear(entry)
        return ending


def lines(subject: Subject, boot: Boot) -> Iterator[str]:
    """Yield messages about a boot that used, kept or passed over kept servers."""
    from pytest_vllm_gates.server.kept.record import span  # noqa: PLC0415

    keeping = boot.evidence.get(KEPT)
    if not keeping:
        return
    for reason in keeping["passed_over"]:
        yield f"{subject.family.name}: a kept server is not used: {reason}"
    if keeping["attached"]:
        age = datetime.datetime.now().astimezone() - datetime.datetime.fromisoformat(
            keeping["booted"]
        )
        yield (
            f"{subject.family.name}: uses the kept server {keeping['name']}, booted "
            f"{span(age.total_seconds())} ago; attached in {keeping['attach_s']:.2f} s"
        )
    else:
        yield (
            f"{subject.family.name}: keeps its server {keeping['name']} for other runs, until it "
            f"is idle for {span(keeping['idle_limit_s'])} "
            f"(vllm-gates servers stop {keeping['name']})"
        )
        if keeping["open_routes"]:
            yield (
                f"{subject.family.name}: {keeping['name']} answers requests without its key at "
                f"{', '.join(keeping['open_routes'])}: other users of this machine can reach it "
                "(docs/kept-servers.md)"
            )
