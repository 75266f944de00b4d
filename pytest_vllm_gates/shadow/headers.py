"""Filters headers and query parameters: a canary gets none that may contain a client's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOP_BY_HOP = frozenset(
    (
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip
"""Headers of one connection (RFC 9110, 7.6.1; `Proxy-Connection` by RFC 9112, appendix C.2.2)."""
OF_A_REQUEST = frozenset(("host", "expect"))
"""`Host` becomes the upstream server's; `Expect: 100-continue` is answered here."""

Header = tuple[str, str]


def passed_on(raw: Iterable[tuple[bytes, bytes]], dropped: frozenset[str]) -> list[Header]:
    """Return headers in their order and spelling, without hop-by-hop headers and `dropped`.

    `Connection` may name more hop-by-hop headers.
    """
    headers = [(name.decode("utf-8", "surrogateescape"),
                value.decode("utf-8", "surrogateescape")) for name, value in raw]  # fmt: skip
    named = {
        word.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for word in value.split(",")
    }
    left_out = HOP_BY_HOP | named | dropped
    return [(name, value) for name, value in headers if name.lower() not in left_out]


def for_the_canary(
    headers: Iterable[Header], allowed: Sequence[str], key: str | None
) -> list[Header]:
    """Return the headers of a copy: the allowed ones, and the canary's own key."""
    kept = [(name, value) for name, value in headers if name.lower() in allowed]
    return [*kept, ("Authorization", f"Bearer {key}")] if key else kept


def path_for_the_canary(path: str, allowed: Sequence[str]) -> str:
    """Return a path with only the allowed parameters of its query, spelled as they are."""
    path, _, query = path.partition("?")
    kept = "&".join(part for part in query.split("&") if part.partition("=")[0] in allowed)
    return f"{path}?{kept}" if kept else path


def target_path(target: str) -> str | None:
    """Return the path of a request's target, which may name a host (RFC 9112, 3.2.2); else None."""
    if target.startswith("/"):
        return target
    scheme, _, rest = target.partition("://")
    if scheme.lower() not in ("http", "https"):
        return None
    authority = min((rest.find(mark) for mark in "/?" if mark in rest), default=len(rest))
    path = rest[authority:]
    return path if path.startswith("/") else f"/{path}"
