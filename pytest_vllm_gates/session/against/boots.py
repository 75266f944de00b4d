"""Measures the throughput of two lanes that boot: boot by boot, and block by block in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pytest_vllm_gates.catalog.plans import BlockGroup, Pair
from pytest_vllm_gates.files import WriteError, write_whole
from pytest_vllm_gates.long_context import prompts as long_context_prompts
from pytest_vllm_gates.long_context.types import load
from pytest_vllm_gates.machine import nvml
from pytest_vllm_gates.outcomes import Blocked
from pytest_vllm_gates.preflight.types import CheckState
from pytest_vllm_gates.server import startup_check
from pytest_vllm_gates.session import boot as session_boot, unwritten
from pytest_vllm_gates.session.launch import Launch
from pytest_vllm_gates.throughput.blocks import BlockDriver, MeasuredServer
from pytest_vllm_gates.throughput.decide import against_lane
from pytest_vllm_gates.throughput.decision import Conclusion, Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_vllm_gates.catalog.plans import Block, ThroughputPlan
    from pytest_vllm_gates.server import launch as server_launch
    from pytest_vllm_gates.server.types import Boot
    from pytest_vllm_gates.session.run import Run, Subject

STRETCHES = 4
"""This many of a block's prompts fit into the text that they are made from."""
WARM_UP_BLOCKS = 4
MEMORY = "memory"
"""The common part of the names of preflight's memory checks."""


class Boots(Protocol):
    """Boots a family of a run, or returns why it did not boot: the signature of `booting.boot`."""

    def __call__(  # noqa: D102
        self, run: Run, subject: Subject, folder: Path, progress: Callable[[str], None]
    ) -> tuple[Boot, server_launch.Server | None]: ...


@dataclass
class LaneComparison:
    """Pairs of boots of two lanes, ours first; each boots as for the gates."""

    ours: Run
    theirs: Run
    subject: Subject
    plan: ThroughputPlan
    folder: Path
    progress: Callable[[str], None]
    boot: Boots = session_boot.boot
    pairs: list[Pair] = field(default_factory=list)
    side_by_side: bool = True
    """Whether both servers fit on the machine at once; determined at the first pair."""
    start_changes: list[str] = field(default_factory=list)
    """The differences between our lane's start and theirs."""
    _text: Sequence[int] = ()

    def measure(self, *, whole: bool) -> Decision:
        """Measure pair after pair until the speeds differ clearly, or all pairs if `whole`.

        Raises `Blocked` if a server does not boot.
        """
        _, most = self.plan.against.pairs
        decision = against_lane(self.pairs, self.plan)
        while len(self.pairs) < most:
            self.pairs.append(self._pair(len(self.pairs)))
            self._keep()
            decision = against_lane(self.pairs, self.plan)
            self.progress(
                f"{self.subject.family.name}: pair {len(self.pairs)} of at most {most}: "
                f"{decision.brief()}"
            )
            if not whole and decision.answer is not Conclusion.INCONCLUSIVE:
                break
        return decision

    def evidence(self) -> dict[str, Any]:
        """Return how it was measured, as JSON."""
        return {"side_by_side": self.side_by_side, "start_changes": self.start_changes}

    def _keep(self) -> None:
        """Write every block so far beside the servers' logs, to recompute a verdict later."""
        path = self.folder / f"{self.subject.family.name.replace('/', '-')}.json"
        document = {"pairs": [dataclasses.asdict(pair) for pair in self.pairs]}
        try:
            write_whole(path, json.dumps(document) + "\n")
        except WriteError as error:
            unwritten.note(self.ours, f"not kept: {error}")

    def _pair(self, number: int) -> Pair:
        began = time.monotonic()
        order = [self.ours, self.theirs]
        if first_is_theirs(number):
            order.reverse()
        first = self._boot(order[0], number)
        try:
            second = self._boot_beside(order[1], number) if self.side_by_side else None
            if second is None:
                return self._alternating(number, first, order, began)
            try:
                boots_s = time.monotonic() - began
                ours, theirs = (first, second) if order[0] is self.ours else (second, first)
                self._note_starts(ours, theirs)
                groups = self._in_turns(number, (first, second), ours, theirs)
            finally:
                second.stop()
        finally:
            first.stop()
        return Pair(groups, boots_s, time.monotonic() - began - boots_s)

    def _in_turns(
        self, number: int, booted: tuple[Launch, Launch], ours: Launch, theirs: Launch
    ) -> tuple[BlockGroup, ...]:
        driver = self._driver(booted[0])
        with contextlib.ExitStack() as stack:
            our_server, their_server = (
                stack.enter_context(server_of(launch, self.ours)) for launch in (ours, theirs)
            )
            # In the random order of the boots, like all measurements that are not in turns.
            for server in (
                (our_server, their_server) if booted[0] is ours else (their_server, our_server)
            ):
                [*driver.blocks(server, f"warm-up-{number}", WARM_UP_BLOCKS)]
            groups = driver.groups(
                our_server, their_server, f"pair-{number}", self.plan.against.groups
            )
            return tuple(groups)

    def _alternating(self, number: int, first: Launch, order: Sequence[Run], began: float) -> Pair:
        """Measure one server after the other, if both do not fit at once."""
        before = self._alone(first, number)
        _ = first.startup  # only a running server reports it
        first.stop()
        booting = time.monotonic()
        second = self._boot(order[1], number)
        boots_s = 2 * (time.monotonic() - booting)
        try:
            after = self._alone(second, number)
            self._note_starts(*((first, second) if order[0] is self.ours else (second, first)))
        finally:
            second.stop()
        ours, theirs = (before, after) if order[0] is self.ours else (after, before)
        groups = tuple(
            BlockGroup((ours[at], ours[at + 1]), (theirs[at], theirs[at + 1]))
            for at in range(0, len(ours) - 1, 2)
        )
        took_s = time.monotonic() - began - boots_s
        return Pair(groups, boots_s, took_s, side_by_side=False)

    def _alone(self, launch: Launch, number: int) -> Sequence[Block]:
        driver = self._driver(launch)
        with server_of(launch, self.ours) as server:
            [*driver.blocks(server, f"warm-up-{number}", WARM_UP_BLOCKS)]
            return [*driver.blocks(server, f"pair-{number}", 2 * self.plan.against.groups)]

    def _driver(self, launch: Launch) -> BlockDriver:
        if not self._text:
            count = STRETCHES * self.plan.prompt_tokens
            self._text = long_context_prompts.token_ids(launch.endpoint(), load(), count)
        return BlockDriver(self.plan, self._text, self.ours.options.stall_timeout_s)

    def _boot_beside(self, run: Run, number: int) -> Launch | None:
        """Boot another server while one runs; None if the memory does not suffice for both."""
        launch = self._try(run, number)
        if launch.ok:
            return launch
        if not self.pairs and _needs_memory(launch):
            self.side_by_side = False
            return None
        raise Blocked(f"lane {run.lane.name}: {launch.explain()}")

    def _boot(self, run: Run, number: int) -> Launch:
        launch = self._try(run, number)
        if not launch.ok:
            launch.check_surroundings()
            raise Blocked(f"lane {run.lane.name}: {launch.explain()}")
        return launch

    def _try(self, run: Run, number: int) -> Launch:
        again = dataclasses.replace(run, boots={})
        which = "ours" if run is self.ours else "theirs"
        folder = self.folder / f"{number}-{which}"
        boot, server = self.boot(again, self.subject, folder, self.progress)
        run.environment = again.environment
        return Launch(boot, server)

    def _note_starts(self, ours: Launch, theirs: Launch) -> None:
        if not self.start_changes:
            self.start_changes = [*startup_check.changes(theirs.startup, ours.startup)]


@contextlib.contextmanager
def server_of(launch: Launch, run: Run) -> Iterator[MeasuredServer]:
    """Yield a boot for measuring, its metrics open."""
    on_gpus = bool(launch.owned and run.machine.gpus)
    with long_context_prompts.metrics(launch.endpoint()) as metrics:
        server = MeasuredServer(launch.endpoint(), metrics, launch.processes, launch.stoppable)
        yield dataclasses.replace(server, watched=nvml.gpu_activity) if on_gpus else server


def first_is_theirs(number: int) -> bool:
    """Return whether the other lane boots first in a pair: at random, then alternating."""
    lot = random.Random(number // 2).random() < 0.5  # noqa: S311, PLR2004 - heads or tails
    return lot is bool(number % 2)


def _needs_memory(launch: Launch) -> bool:
    """Return whether preflight refused a boot only because memory does not suffice."""
    failed = [
        check["name"]
        for check in launch.boot.evidence.get("preflight", ())
        if check["state"] == CheckState.FAILS
    ]
    return bool(failed) and all(MEMORY in name for name in failed)
