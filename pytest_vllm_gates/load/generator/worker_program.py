"""The process in which a worker sends its part of one load.

    python -m pytest_vllm_gates.load.generator.worker_program HOST PORT [SECRET_FILE]

Locust patches the standard library, so that this is a separate process.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import locust
from locust.env import Environment
from locust.runners import WorkerRunner

from pytest_vllm_gates import __version__
from pytest_vllm_gates.load.generator import messages
from pytest_vllm_gates.load.generator.locust_user import LoadUser, WorkerShare
from pytest_vllm_gates.load.generator.socket_client import Clock, Target, stamping

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.rpc import Message

ANSWER_S = 20.0
"""The time limit for a master to admit a worker."""
LINGER_MS = 1000
"""The time limit for its last messages: a worker ends even if its master is gone."""
SKEW_S = 5.0
"""The tolerance for a worker's clock and a message's travel time."""


class Worker(WorkerRunner):
    """A locust worker that proves it knows the secret, and receives its users' requests."""

    def __init__(self, environment: Environment, host: str, port: int, secret: str) -> None:
        self._secret = secret
        self.share = LoadUser.share = WorkerShare()
        super().__init__(environment, host, port)
        for name, hear in [
            (messages.PART, self._part),
            (messages.DEAL, self._deal),
            (messages.BEGIN, self._begin),
        ]:
            self.register_message(name, functools.partial(self._heard, hear))

    def connect_to_master(self) -> None:
        """Request admission."""
        self.client.socket.linger = LINGER_MS
        proof = messages.proof(self._secret, self.client_id)
        me = {"proof": proof, "pid": os.getpid(), "version": __version__}
        self.send_message(messages.ADMIT, me)
        # Locust annotates a message as an object; this package's messages are words.
        self.send_message("client_ready", locust.__version__)  # type: ignore[arg-type]
        if not self.connection_event.wait(timeout=ANSWER_S):
            sys.exit(
                f"the master at {self.master_host}:{self.master_port} does not admit this worker: "
                f"is ${messages.SECRET_VARIABLE} the same there, and does it wait for so many?"
            )
        self.connected = True

    def _heard(self, hear: Callable[[dict[str, Any]], None], msg: Message, **_: object) -> None:
        self._reporting(hear, msg.data)

    def _reporting(self, act: Callable[[dict[str, Any]], None], data: dict[str, Any]) -> None:
        """Run `act`; report an exception to the master."""
        try:
            act(data)
        except Exception as error:  # noqa: BLE001 - the master is to know, whatever it is
            self.send_message(messages.FAILED, {"why": f"{type(error).__name__}: {error}"})

    def _part(self, data: dict[str, Any]) -> None:
        self.share.backlog.extend(map(messages.planned, data["requests"]))

    def _deal(self, data: dict[str, Any]) -> None:
        share = self.share
        self._stamped = stamping()
        share.target = Target(data["host"], data["port"], data["headers"], data["verify"])
        share.closed = data["closed"]
        share.silence_s, share.seconds = data["silence_s"], data["seconds"]
        self.send_message(messages.READY, {"requests": len(share.backlog)})

    def _begin(self, data: dict[str, Any]) -> None:
        begun_unix_s, lead_s = data["begun_unix_s"], data["lead_s"]
        off = time.time() + lead_s - begun_unix_s
        if abs(off) > SKEW_S:
            raise RuntimeError(
                f"its clock and the master's are about {abs(off):.0f} s apart: synchronise them"
            )
        gc.disable()  # a garbage collection must not be counted as the server's
        self.share.clock = Clock(begun_unix_s)
        self.share.begun.set()
        gevent.spawn(self._reporting, self._finish, {})

    def _finish(self, _: dict[str, Any]) -> None:
        """Send locust's count and the raw responses once every user has ended."""
        self.user_greenlets.join()
        took_s = self.share.clock.now()
        counted: dict[str, Any] = {}
        self.environment.events.report_to_master.fire(  # type: ignore[no-untyped-call]
            client_id=self.client_id, data=counted
        )
        self.send_message("stats", counted)
        for rows in messages.raw_rows(self.share.raws):
            self.send_message(messages.RAWS, {"raws": rows})
        self.send_message(messages.DONE, {"took_s": took_s, "left": len(self.share.backlog)})


def main(host: str, port: str, secret_file: str = "") -> None:
    """Serve one master until it quits."""
    secret = os.environ.get(messages.SECRET_VARIABLE, "")
    if secret_file:
        secret = Path(secret_file).read_text(encoding="ascii")
    environment = Environment(user_classes=[LoadUser], catch_exceptions=False)
    # Without options, locust would read its own from the user's files and variables.
    environment.parsed_options = argparse.Namespace(web_base_path="", headless=True)
    runner = environment.runner = Worker(environment, host, int(port), secret)
    try:
        runner.greenlet.join()
    except KeyboardInterrupt:
        runner.send_message(messages.FAILED, {"why": "it was interrupted"})


if __name__ == "__main__":
    main(*sys.argv[1:])
