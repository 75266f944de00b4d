"""A fault: how a server misbehaves, the gates that must fail, and their message."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from faults.exchange import CHAT

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange

    Change = Callable[[Exchange], None]

On = Literal["request", "asked", "anything", "chat", "whole", "stream"]


@dataclass(frozen=True)
class Fault:
    """One misbehaviour of a server, as a change of what passes through the proxy."""

    name: str
    what: str
    gate: str | None
    """The gate that fails; None for a change that is not a fault."""
    says: str
    """A part of the failure's message."""
    on: On
    check: str = ""
    """The gate's check that reports it, without `test_`; empty: any of them."""
    also: tuple[str, ...] = ()
    """Other gates that fail, because the fault also harms what they check; no more gates do."""
    besides: tuple[str, ...] = ()
    """Other checks of the same gate that fail, because the fault also harms what they check."""
    request: Change | None = None
    reply: Change | None = None

    @property
    def gates(self) -> set[str]:
        """All gates that fail."""
        return {self.gate, *self.also} if self.gate else set()

    @property
    def chats_only(self) -> bool:
        """Whether all but chat completions pass as they are."""
        return self.on in ("asked", "chat", "whole", "stream")


class Faults:
    """A list of faults that grows by decorated functions, one function a fault."""

    def __init__(self, gate: str | None) -> None:
        self._gate = gate
        self.all: list[Fault] = []

    def add(
        self,
        on: On,
        says: str = "",
        check: str = "",
        also: tuple[str, ...] = (),
        besides: tuple[str, ...] = (),
    ) -> Callable[[Change], Change]:
        """Make a fault of a function; `on` names what it changes.

        Any request or that of a chat (`asked`), any answer, the answers to chats, or only those in
        one piece or as a stream.
        """

        def declare(change: Change) -> Change:
            def request(exchange: Exchange) -> None:
                if on == "request" or exchange.path == CHAT:
                    change(exchange)

            def reply(exchange: Exchange) -> None:
                applies = {
                    "anything": True,
                    "chat": exchange.chat,
                    "whole": exchange.chat and not exchange.streamed,
                    "stream": exchange.chat and exchange.streamed,
                }
                if applies[on]:
                    change(exchange)

            self.all.append(
                Fault(
                    name=change.__name__,
                    what=(change.__doc__ or "").strip(),
                    gate=self._gate,
                    says=says,
                    on=on,
                    check=check,
                    also=also,
                    besides=besides,
                    request=request if on in ("request", "asked") else None,
                    reply=None if on in ("request", "asked") else reply,
                )
            )
            return change

        return declare

    def asked(self, path: str, check: str, says: str, *besides: str) -> Callable[[Change], Change]:
        """Make a fault of a function that changes copies of the requests of one route."""

        def declare(change: Change) -> Change:
            @functools.wraps(change)
            def alter(exchange: Exchange) -> None:
                if exchange.path == path:
                    exchange.body = copy.deepcopy(exchange.body)
                    change(exchange)

            return self.add("request", says=says, check=check, besides=besides)(alter)

        return declare

    def told(
        self, path: str, check: str, says: str, *besides: str, refused: bool = False
    ) -> Callable[[Change], Change]:
        """Make a fault of a function that changes copies of one route's good or `refused` answers.

        They are copies, because the upstream keeps its answers.
        """

        def declare(change: Change) -> Change:
            @functools.wraps(change)
            def alter(exchange: Exchange) -> None:
                if exchange.path == path and (exchange.status != HTTPStatus.OK) == refused:
                    exchange.events = copy.deepcopy(exchange.events)
                    change(exchange)

            return self.add("anything", says=says, check=check, besides=besides)(alter)

        return declare
