"""One shadow from start to end: clients' traffic, or a trace, until its end."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.shadow.endings import on_signals
from pytest_vllm_gates.shadow.mirroring.run import Mirroring
from pytest_vllm_gates.shadow.proxy.process import pass_on
from pytest_vllm_gates.shadow.recorded import RecordedTrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.shadow.plan import Shadow


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory; None where it is not installed, as on Windows."""
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415

    return uvloop.new_event_loop


async def run(shadow: Shadow, ready: Callable[[str, str], None]) -> dict[str, Any]:
    """Run a shadow until its end; return its document.

    `ready` gets the URLs of the proxy and of the second port once both answer; the first is empty
    with a trace. Raises `UserError` if a port cannot be opened.
    """
    return await (pass_on if shadow.trace is None else _send_a_trace)(shadow, ready)


async def _send_a_trace(shadow: Shadow, ready: Callable[[str, str], None]) -> dict[str, Any]:
    """Send recorded requests. One process is enough: no clients have to wait."""
    ending = asyncio.Event()
    on_signals(ending)
    async with Mirroring(shadow) as mirroring:
        control_url = await mirroring.start()
        trace = asyncio.create_task(
            RecordedTrace(
                shadow.trace or (), shadow.stable, shadow.stable_key, mirroring.mirror,
                shadow.settings, shadow.limits, mirroring.room, mirroring.counts,
            ).run()
        )  # fmt: skip
        trace.add_done_callback(lambda _: ending.set())
        ready("", control_url)
        await mirroring.until_the_end(ending)
        trace.cancel() if not trace.done() else trace.result()
        return await mirroring.finish(shadow.drain_s)
