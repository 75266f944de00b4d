"""TLS over a load's sockets: bytes in, bytes out, so that the sockets keep the kernel's stamps."""

from __future__ import annotations

import ssl

READ_BYTES = 2**16


class Encryption:
    """TLS on one connection (`ssl.MemoryBIO`): it touches no socket.

    A token's time is that of the packet that completes its TLS record (RFC 8446, 5.1).
    """

    def __init__(self, context: ssl.SSLContext, host: str, request: bytes) -> None:
        """Begin with the client's hello; `request` follows once both sides have shaken hands."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._request = request
        self.established = False
        """Whether the request is in the bytes that `to_send` has returned, or in the next ones."""
        self._shake()

    def to_send(self) -> bytes:
        """Return the bytes to be sent next, once."""
        return self._outgoing.read()

    def received(self, data: bytes) -> tuple[bytes, bool]:
        """Take bytes of the server; return their plaintext, and whether more may come.

        Raises `ssl.SSLError` if the handshake fails or TLS breaks.
        """
        self._incoming.write(data)
        if not self.established:
            self._shake()
        if not self.established:
            return b"", True
        parts: list[bytes] = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), True
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(parts), False

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self._tls.write(self._request)
        self.established = True
