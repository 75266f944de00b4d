r"""A worker of a load, on this machine or another.

    GATES_LOAD_SECRET=... python -m pytest_vllm_gates.load.generator.locust_worker \
        --master HOST[:PORT]

It waits for a master there, sends its part of the load, and waits for the next, until it is
interrupted. Its times count from the moment that the master sets as the beginning, by its own
machine's clock: the clocks of the machines have to agree (chrony, PTP) as precisely as requests
are to be sent. Latencies lie between two times of one machine and do not depend on that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import time

from pytest_vllm_gates.load.generator.messages import SECRET_VARIABLE, address

PROGRAM = "pytest_vllm_gates.load.generator.worker_program"
LOOK_S = 0.2
CONNECT_S = 5.0
AGAIN_S = 1.0


def main(arguments: list[str] | None = None) -> None:
    """Serve one master after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_vllm_gates.load.generator.locust_worker"
    )
    parser.add_argument("--master", required=True, metavar="HOST[:PORT]")
    options = parser.parse_args(arguments)
    try:
        host, port = address(options.master)
    except ValueError as error:
        parser.error(f"--master {error}")
    if not os.environ.get(SECRET_VARIABLE):
        parser.error(f"${SECRET_VARIABLE} is not set: it is the one pytest has at the master")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            _wait(host, port)
            print(f"working for {host}:{port}", flush=True)
            subprocess.run([sys.executable, "-m", PROGRAM, host, str(port)], check=False)
            time.sleep(AGAIN_S)


def _wait(host: str, port: int) -> None:
    """Return once a master listens there."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, port), CONNECT_S):
            return
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
