"""Requests of a load, what came back at the socket, and the tokens in it with their times."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Planned:
    """One request of a load."""

    name: str
    path: str
    body: bytes
    at_s: float | None = None
    """When it is to go out, seconds from the start; None: as soon as a user is free."""


@dataclass(frozen=True)
class Workers:
    """The processes that share the sending of a load."""

    count: int = 0
    """None: one process sends everything."""
    listen: str = ""
    """HOST:PORT where workers of other machines are awaited; '': they are started on this one."""
    secret: str = field(default="", repr=False)
    """What workers of other machines must know."""


ALONE = Workers()


@dataclass(frozen=True)
class Raw:
    """How one request went, as seen at the socket. Seconds are from the start of the load."""

    name: str
    intended_s: float
    """When it was to go out. Latencies count from here: a late client hides no queue."""
    sent_s: float | None
    """When its last byte was handed to the kernel; None where it never was."""
    ended_s: float
    """When the last byte came, or the failure."""
    answer: bytes
    """Head and body as they came."""
    arrivals: tuple[tuple[float, int], ...]
    """When the kernel took in what was read, and how many bytes had been read by then in all."""
    lag_s: float = 0.0
    """The longest time that something lay in the kernel before it was read."""
    error: str = ""
    """Why the answer is not whole."""
    begun_s: float | None = None
    """When the client took it up and asked for a connection; None where that is not told."""

    @property
    def dispatched_s(self) -> float | None:
        """When the client did its part: a connection the server is slow to accept is the server's.

        None where the request never went out.
        """
        return self.sent_s if self.begun_s is None else self.begun_s


@dataclass(frozen=True)
class Answered:
    """An answer's tokens with their times, seconds from the start of the load."""

    name: str
    intended_s: float
    ended_s: float
    prompt_tokens: int | None = None
    """As the server counts them; None where it does not tell."""
    tokens: tuple[tuple[float, int], ...] = ()
    """When tokens came, and how many came together: reasoning is output, too."""
    counted_by: str = ""
    """What told how many tokens a chunk held: `usage`, `token_ids`; `chunks` where nothing did."""
    error: str = ""
    """Why there is no whole answer: status and message, or a broken connection."""
    token_ids: int | None = None
    """The tokens whose ids came, however many are counted; None where the server sends no ids."""

    @property
    def output_tokens(self) -> int:
        """How many tokens were generated."""
        return sum(count for _, count in self.tokens)


@dataclass(frozen=True)
class Driven:
    """A load that was driven, and all that came of it."""

    begun_unix_s: float
    took_s: float
    raws: tuple[Raw, ...] = field(repr=False)
