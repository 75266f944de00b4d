"""The fake servers of the tests; each listens on 127.0.0.1 and ends with its `running` block.

- `stub.StubServer` behaves as a whole vLLM server does, with faults by name. It is also a program.
- `scripted.ScriptedServer` answers HTTP as a function of the test returns;
  `scripted.ScriptedModel` answers chats with what a function makes the model generate.
- `raw.RawServer` sends any bytes over the socket; `raw.TimetableServer` streams to a timetable,
  from a process of its own.
- `encrypted.EncryptedServer` puts TLS before any of them.
- `idle.IdleClosingServer` keeps connections and closes idle ones just as the next request comes.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server(Protocol):
    """A server that listens from when it is made; its methods are those of `socketserver`."""

    def serve_forever(self, poll_interval: float, /) -> None:
        """Answer until `shutdown` is called from another thread."""

    def shutdown(self) -> None:
        """End `serve_forever`."""

    def server_close(self) -> None:
        """Close the port."""


AnyServer = TypeVar("AnyServer", bound=Server)


@contextlib.contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """Serve from a thread of this process while the block lasts."""
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
