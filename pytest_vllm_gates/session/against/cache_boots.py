"""Boots a family on damaged caches, and sends it the questions of the run's own server."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import flags
from pytest_vllm_gates.lifecycle import caches, killed
from pytest_vllm_gates.lifecycle.types import CacheBoot, CacheState
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.lifecycle.killed import KilledBoot
    from pytest_vllm_gates.session.against.replicas import Replicas
    from pytest_vllm_gates.session.launch import Launch

HALF = 0.6
"""The killed boot ends after this share of a whole boot if it compiles nothing."""
TWICE = 2.0
"""The limit of one that compiles. The whole boot may have used warm caches; this one is cold."""


@dataclass
class CacheBoots:
    """The boots of one family on separate caches, each made at its first use."""

    replicas: Replicas
    _killed: KilledBoot | None = None
    _made: dict[CacheState, tuple[CacheBoot, ...]] | None = None

    @property
    def folder(self) -> Path:
        """The folder of the caches."""
        return self.replicas.folder / "caches"

    @property
    def compiles(self) -> bool:
        """Whether the server compiles its model, as vLLM does without --enforce-eager."""
        subject, lane = self.replicas.subject, self.replicas.run.lane
        serve = flags.serving(subject.family, subject.checkpoint, lane)
        return not serve.get("enforce_eager")

    def killed(self) -> KilledBoot:
        """Return how the boot on empty caches ended that was killed half-way."""
        if self._killed is None:
            replicas = self.replicas
            replicas.end_the_own()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            times = replicas.launch.boot.times
            share = TWICE if self.compiles else HALF
            most_s = share * ((times and times.health_s) or 0.0)
            plan = replicas.plan(
                "killed", "on empty caches, killed half-way", env=caches.variables(self.folder)
            )
            self._killed = killed.kill_half_way(plan, self.folder, most_s)
        return self._killed

    def of(self, state: CacheState) -> tuple[CacheBoot, ...]:
        """Return the boots on caches in a state; boots that they need are made before.

        Raises `NotApplicable` if this server keeps nothing, or cannot be kept from writing.
        """
        if self._made is None:
            self._made = {CacheState.KILLED: self._after_the_killed()}
        if state not in self._made:
            if not caches.files(self.folder):
                raise NotApplicable("the server keeps nothing in its caches")
            boot = self._on_garbled if state is CacheState.GARBLED else self._on_read_only
            self._made[state] = (boot(),)
        return self._made[state]

    def _after_the_killed(self) -> tuple[CacheBoot, ...]:
        """Boot on the caches that the killed boot left: twice at once if the machine has room."""
        self.killed()
        env = caches.variables(self.folder)
        both = self.replicas.room_for_two()
        names = ["1 of 2 at once", "2 of 2 at once"] if both else ["alone"]
        with ThreadPoolExecutor(len(names)) as pool:
            launches = [
                pool.submit(
                    self.replicas.boot,
                    f"after-killed-{number}",
                    f"on the caches of the one that was killed, {name}",
                    env=env,
                    taped=False,
                )
                for number, name in enumerate(names, 1)
            ]
            booted = [launch.result() for launch in launches]
        try:
            asked = [self._asked(launch, name) for launch, name in zip(booted, names, strict=True)]
        finally:
            for launch in booted:
                launch.stop()
        return tuple(asked)

    def _on_garbled(self) -> CacheBoot:
        copy = self._copy("garbled")
        done = caches.garble(copy)
        told = f"{done.cut} files cut in half, {done.zeroed} full of zeros"
        launch = self.replicas.boot("garbled", f"on caches with {told}", env=caches.variables(copy))
        return self._asked(launch, told)

    def _on_read_only(self) -> CacheBoot:
        if self.replicas.run.lane.command is not None:
            raise NotApplicable("the lane's own command sets the server's permissions")
        copy = self._copy("read-only")
        caches.forbid_writing(copy)
        try:
            launch = self.replicas.boot(
                "read-only",
                "on caches that it may only read",
                env=caches.variables(copy),
                program=caches.without_override(self.replicas.run.lane.start.server),
            )
            return self._asked(launch, "may only be read", forbidden=copy)
        finally:
            caches.allow_writing(copy)

    def _copy(self, name: str) -> Path:
        copy = self.replicas.folder / f"caches-{name}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy, symlinks=True)
        return copy

    def _asked(self, launch: Launch, name: str, *, forbidden: Path | None = None) -> CacheBoot:
        """Send the questions to a server, and end it.

        Raises `Infrastructure` if this machine prevents its start. A start that fails because it
        may not write below `forbidden` is the server's failure.
        """
        try:
            if not launch.ok:
                explained = launch.explain()
                if forbidden is None or str(forbidden) not in explained:
                    launch.check_surroundings()
                return CacheBoot(name, explained, ())
            return CacheBoot(name, "", tuple(self.replicas.ask(launch.endpoint())))
        finally:
            launch.stop()
