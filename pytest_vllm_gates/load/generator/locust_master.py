"""The process that drives a load as locust's master, over workers that send its requests.

    python -m pytest_vllm_gates.load.generator.locust_master JOB RESULT

Both files are pickles, as in `program.py`. From the network come only lists as msgpack, and only of
workers that know the secret: other clients are ignored, so that none of them gets the server's key.

Every worker has its part of the requests before the load begins, so its users never wait for the
master.
"""

from __future__ import annotations

import hmac
import math
import pickle
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import gevent
from locust import runners
from locust.env import Environment
from locust.exception import RPCError

from pytest_vllm_gates import __version__
from pytest_vllm_gates.load.generator import messages, result
from pytest_vllm_gates.load.generator.locust_user import LoadUser
from pytest_vllm_gates.load.types import DrivenLoad, PlannedRequest, RawResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from locust.rpc import Message

    from pytest_vllm_gates.load.generator.program import Job

PROGRAM = "pytest_vllm_gates.load.generator.worker_program"
WORKER = "pytest_vllm_gates.load.generator.locust_worker"
HERE = "127.0.0.1"
GATHER_S = 60.0
"""The time limit for workers to connect, and for each to take its part."""
LEAD_S = 0.3
"""How long before a load begins the workers receive its start time."""
SILENT_S = 30
"""A worker counts as lost after so many seconds without a heartbeat; locust's own 3 are too few if
the server uses every core of the machine."""
LOOK_S = 0.02
SHOWN = 2000


@dataclass
class MasterWorker:
    """One worker, as the master knows it."""

    name: str
    pid: int
    ready: bool = False
    part: list[PlannedRequest] = field(default_factory=list)
    raws: list[RawResponse] = field(default_factory=list)
    took_s: float | None = None
    left: int = 0
    """Requests that were not sent because the load's seconds were over."""


class Master(runners.MasterRunner):
    """A locust master that accepts only workers with the secret, and keeps what they send."""

    def __init__(
        self, environment: Environment, host: str, port: int, secret: str, count: int
    ) -> None:
        self.admitted: dict[str, MasterWorker] = {}
        self.failure = ""
        self._secret = secret
        self._count = count
        super().__init__(environment, host, port)
        self.server.socket.linger = 1000  # ms; a worker that hangs does not block the end

    def client_listener(self) -> NoReturn:
        """Listen; messages of unknown clients do not stop it."""
        while True:
            try:
                super().client_listener()
            except Exception:  # noqa: BLE001 - it was no message; what a worker does wrong is kept
                gevent.sleep(LOOK_S)

    def handle_message(self, client_id: str, msg: Message) -> None:
        """Handle the message of an admitted worker, or admit one that knows the secret."""
        if client_id not in self.admitted:
            if msg.type == messages.ADMIT and len(self.admitted) < self._count:
                self._admit(client_id, **msg.data)
        elif msg.node_id == client_id:
            worker = self.admitted[client_id]
            try:
                if not self._heard(worker, msg):
                    super().handle_message(client_id, msg)
            except Exception as error:  # noqa: BLE001 - the load is not to wait for ever
                self.failure = f"{worker.name} sent {msg.type}: {error!r}"

    def _admit(self, client_id: str, proof: str, pid: int, version: str) -> None:
        if hmac.compare_digest(proof, messages.proof(self._secret, client_id)):
            host = client_id.rpartition("_")[0]
            name = (
                f"load worker {len(self.admitted) + 1} of {self._count} (process {pid} on {host})"
            )
            self.admitted[client_id] = MasterWorker(name, pid)
            if version != __version__:
                self.failure = f"{name} is of version {version}, and this is {__version__}"

    def _heard(self, worker: MasterWorker, msg: Message) -> bool:
        """Handle one of this package's messages; return False for one of locust's own."""
        match msg.type:
            case messages.READY:
                worker.ready = True
                if (has := msg.data["requests"]) != len(worker.part):
                    self.failure = f"{worker.name} has {has} of {len(worker.part)} requests"
            case messages.RAWS:
                worker.raws.extend(map(messages.raw, msg.data["raws"]))
            case messages.DONE:
                worker.took_s, worker.left = msg.data["took_s"], msg.data["left"]
            case messages.FAILED:
                self.failure = f"{worker.name} failed: {msg.data['why']}"
            case "exception":
                self.failure = f"{worker.name} failed: {msg.data['msg']}\n{msg.data['traceback']}"
            case _:
                return False
        return True


class Children:
    """The workers started on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, count: int, port: int, secret: str) -> None:
        """Start so many; they read the secret from a file that only this user can read."""
        secret_file = self._folder / "secret"
        secret_file.touch(mode=0o600)
        secret_file.write_text(secret, encoding="ascii")
        for number in range(count):
            with self._words(number).open("wb") as words:
                self._started.append(
                    subprocess.Popen(
                        [sys.executable, "-m", PROGRAM, HERE, str(port), str(secret_file)],
                        stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                    )
                )  # fmt: skip

    def ended(self) -> Iterator[tuple[int, str]]:
        """Yield the process id of each that has ended, with status and output."""
        for number, child in enumerate(self._started):
            if (status := child.poll()) is not None:
                words = self._words(number).read_text(encoding="utf-8", errors="replace")
                output = f"; it said:\n{words[-SHOWN:].strip()}" if words.strip() else ""
                yield child.pid, f"ended with status {status}{output}"

    def end(self) -> None:
        """Kill them: their results have been received."""
        for child in self._started:
            child.kill()
            child.wait()

    def _words(self, number: int) -> Path:
        return self._folder / f"worker-{number}"


class Drive:
    """Drives one job through its workers."""

    def __init__(self, job: Job, master: Master, children: Children) -> None:
        self._job = job
        self._master = master
        self._children = children

    def run(self, requests: list[PlannedRequest]) -> DrivenLoad:
        """Gather the workers, deal them the requests, start them, and merge their responses.

        Raises `RuntimeError` if a worker is lost or reports a failure.
        """
        job, master, count = self._job, self._master, self._job.workers.count
        self._until(lambda: len(master.clients.ready) == count, "come", GATHER_S)
        users = len(requests) if job.users is None else min(job.users, len(requests))
        master.start(users, spawn_rate=users)
        self._until(lambda: master.user_count == users, "have their users", GATHER_S)
        parts = messages.dealt(
            requests,
            {client_id: master.clients[client_id].user_count for client_id in master.admitted},
        )
        deal = {
            "host": job.host, "port": job.port, "headers": job.headers, "verify": job.verify,
            "closed": job.users is not None, "silence_s": job.silence_s, "seconds": job.seconds,
        }  # fmt: skip
        for client_id, worker in master.admitted.items():
            worker.part = parts[client_id]
            for rows in messages.planned_rows(worker.part):
                master.send_message(messages.PART, {"requests": rows}, client_id)
            master.send_message(messages.DEAL, deal, client_id)
        admitted = master.admitted.values()
        self._until(
            lambda: all(worker.ready for worker in admitted), "take their requests", GATHER_S
        )
        begun_unix_s = time.time() + LEAD_S
        master.send_message(messages.BEGIN, {"begun_unix_s": begun_unix_s, "lead_s": LEAD_S})
        self._until(lambda: all(worker.took_s is not None for worker in admitted))
        return self._merged(begun_unix_s)

    def _until(self, done: Callable[[], bool], goal: str = "", within_s: float = math.inf) -> None:
        """Wait for `done`; raise `RuntimeError` for a worker lost meanwhile or a timeout."""
        deadline = time.monotonic() + within_s
        while not done():
            self._look()
            if time.monotonic() > deadline:
                raise RuntimeError(self._late(goal, within_s))
            gevent.sleep(LOOK_S)
        self._look()

    def _late(self, goal: str, within_s: float) -> str:
        workers, arrived = self._job.workers, len(self._master.clients.ready)
        message = f"of {workers.count} load workers not all {goal} within {within_s:g} s"
        if goal != "come" or not workers.listen:
            return message
        return (
            f"{message}, but {arrived}; start them where they are: {messages.SECRET_VARIABLE}=... "
            f"python -m {WORKER} --master {workers.listen}"
        )

    def _look(self) -> None:
        """Raise `RuntimeError` if a worker is lost or failed."""
        admitted, clients = self._master.admitted, self._master.clients
        for pid, end in self._children.ended():
            workers = [worker for worker in admitted.values() if worker.pid == pid]
            name = workers[0].name if workers else f"a load worker (process {pid})"
            undelivered = f"; {len(workers[0].part)} requests were its to send" if workers else ""
            raise RuntimeError(f"{name} {end}{undelivered}")
        for client_id, worker in admitted.items():
            node = clients.get(client_id)
            if node is not None and node.state == runners.STATE_MISSING:
                raise RuntimeError(f"{worker.name} has sent no heartbeat for {SILENT_S} s")
        if self._master.failure:
            raise RuntimeError(self._master.failure)

    def _merged(self, begun_unix_s: float) -> DrivenLoad:
        raws: list[RawResponse] = []
        for worker in self._master.admitted.values():
            if len(worker.raws) + worker.left != len(worker.part):
                raise RuntimeError(
                    f"{worker.name} had {len(worker.part)} requests, and reports {len(worker.raws)}"
                )
            raws += worker.raws
        counted = self._master.stats.total.num_requests
        if counted != len(raws):
            raise RuntimeError(f"locust counts {counted} requests, and {len(raws)} came back")
        took_s = max(worker.took_s or 0.0 for worker in self._master.admitted.values())
        return DrivenLoad(
            begun_unix_s, took_s, tuple(sorted(raws, key=lambda response: response.ended_s))
        )


def drive(job: Job, folder: Path) -> DrivenLoad:
    """Drive a job; `folder`: a folder that only this user can read."""
    requests = [*job.requests]
    if job.users is None:
        due = (request for request in requests if (request.at_s or 0.0) <= job.seconds)
        requests = sorted(due, key=lambda request: request.at_s or 0.0)
    if not requests:
        return DrivenLoad(time.time(), 0.0, ())
    workers = job.workers
    secret = workers.secret or secrets.token_hex(32)
    host, port = messages.address(workers.listen) if workers.listen else (HERE, 0)
    # A worker that waits for a busy machine for a while is not lost.
    runners.HEARTBEAT_LIVENESS = SILENT_S
    environment = Environment(user_classes=[LoadUser])
    try:
        master = Master(environment, host, port, secret, workers.count)
    except RPCError as error:
        raise RuntimeError(f"no load worker can come to {host}:{port}: {error}") from None
    environment.runner = master
    children = Children(folder)
    try:
        if not workers.listen:
            children.start(workers.count, master.server.port, secret)
        return Drive(job, master, children).run(requests)
    finally:
        if workers.listen:
            master.quit()
        children.end()


def main(job_file: str, result_file: str) -> None:
    """Drive the job."""
    job: Job = pickle.loads(Path(job_file).read_bytes())  # noqa: S301 - written by `measure`
    try:
        load = drive(job, Path(job_file).parent)
    except RuntimeError as error:
        sys.exit(str(error))
    result.write(result_file, load)


if __name__ == "__main__":
    main(*sys.argv[1:])
