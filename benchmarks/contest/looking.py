"""Where the contestants find a clean server to compare with, and the faulty one to look at."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest import look as looks
from benchmarks.contest.types import Look, Reference, Target

if TYPE_CHECKING:
    from pytest_vllm_gates.session.launch import Launch

UPSTREAMS: dict[str, Any] = {}
"""The real server behind each proxy of this process, by the proxy's URL."""
CLEAN: dict[str, Reference] = {}
"""What was recorded of a clean proxy of a real server, by that server's address and family."""


def watch_proxies() -> None:
    """Have each proxy of `tests/faults` remember the real server that it stands before."""
    from faults.proxy import Proxy  # noqa: PLC0415 - only where tests/faults is collected

    if hasattr(Proxy, "real"):
        return
    made = Proxy.__init__

    def make(self: Any, upstream: Any, **others: Any) -> None:
        made(self, upstream, **others)
        self.real = upstream
        UPSTREAMS[self.base_url] = upstream

    Proxy.__init__ = make  # type: ignore[method-assign]
    Proxy.real = None  # type: ignore[attr-defined]


def of_proxy(upstream: Any, family: str) -> Reference:
    """Record a clean proxy of a real server once, as faulty ones will be looked at.

    The proxy remembers answers, so its speed is not the server's: the speed rules do not look.
    """
    name = f"{upstream.host} {family}"
    if name not in CLEAN:
        from faults.proxy import Proxy  # noqa: PLC0415

        with Proxy(upstream) as proxy:
            target = Target(proxy.base_url, upstream.key, upstream.model, family)
            CLEAN[name] = looks.record(target, speeds=0)
    return CLEAN[name]


def recorded(path: Path, family: str) -> Reference | None:
    """Return what was recorded of a clean boot of a family; None where nothing was."""
    if not path.is_file():
        return None
    known = json.loads(path.read_text(encoding="utf-8"))
    return Reference.read(known[family]) if family in known else None


def at(
    launch: Launch, subject: Any, base_url: str | None, planned: dict[str, Any]
) -> dict[str, Look]:
    """Let all contestants look at the server of a run of the gates."""
    family, tokenizer = subject.family.name, str(subject.checkpoint.source)
    endpoint = launch.boot.endpoint
    if endpoint is not None:
        target = Target(endpoint.base_url, endpoint.api_key, endpoint.model, family)
    elif base_url:
        target = Target(base_url, os.environ.get("OPENAI_API_KEY"), None, family)
    else:
        return looks.nothing_answers("the server did not come up")
    upstream = UPSTREAMS.get(target.base_url)
    reference = (
        of_proxy(upstream, family) if upstream else recorded(Path(planned["references"]), family)
    )
    return looks.look(target, reference, tokenizer=tokenizer)
