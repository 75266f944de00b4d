"""Boots a lane's server repeatedly, with empty and with filled caches, and times it."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2 as httpx
import openai

from pytest_vllm_gates.catalog import conversation as conversations
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.ready import NotServing
from pytest_vllm_gates.client.sameness import why_degenerate
from pytest_vllm_gates.server import ready as server_ready, startup
from pytest_vllm_gates.server.launch import LaunchPlan, Server
from pytest_vllm_gates.warmup.marks import LogMarks, phases
from pytest_vllm_gates.warmup.types import COLD, WARM, WarmupBoot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.patience import BootLimits
    from pytest_vllm_gates.warmup.marks import WarmupSettings

QUESTION = "plain"
ANSWER_TOKENS = 1024
GRACE_S = 30.0


class WarmupFailed(Exception):  # noqa: N818 - a state of the server, reported to the user
    """A boot that failed, or whose first answer is wrong; the text has the next step."""


@dataclass(frozen=True)
class WarmupTask:
    """The server to boot, and its folders."""

    family: Family
    checkpoint: Checkpoint
    lane: Lane
    python: Path | None
    folder: Path
    """The folder of the logs and the caches."""
    project: Path
    limits: BootLimits
    settings: WarmupSettings
    progress: Callable[[str], None]


def boots(task: WarmupTask, count: int) -> Iterator[WarmupBoot]:
    """Boot `count` times with empty caches, then `count` times with the last boot's caches.

    Raises `WarmupFailed` for a failed boot, and for a wrong first answer.
    """
    filled = task.folder
    for number in range(1, count + 1):
        filled = task.folder / f"caches-{number}"
        yield _boot(task, COLD, number, filled)
    for number in range(1, count + 1):
        yield _boot(task, WARM, number, filled)


def _boot(task: WarmupTask, caches: str, number: int, filled: Path) -> WarmupBoot:
    folders = {name: filled / folder for name, folder in task.settings.caches.items()}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    if caches == COLD:
        _forget_pages(Path(task.checkpoint.source))
    plan = LaunchPlan(
        family=task.family, lane=task.lane, checkpoint=task.checkpoint, python=task.python,
        overlay=task.lane.overlay_path, folder=task.folder / f"{caches}-{number}",
        limits=task.limits, env={name: str(folder) for name, folder in folders.items()},
    )  # fmt: skip
    plan.folder.mkdir(parents=True, exist_ok=True)
    marks = LogMarks(task.settings.marks)
    server = Server(plan, task.progress, marks.take)
    try:
        boot = server.boot
        if boot.endpoint is None or boot.times is None:
            assert boot.failure is not None  # noqa: S101 - one of the two is set
            raise WarmupFailed(f"the {caches} boot {number} failed: {boot.failure.explain()}")
        health_s, first_s = boot.times.health_s, boot.times.first_chat_s
        assert health_s is not None and first_s is not None  # noqa: S101 - it was started here
        begun_s = time.monotonic()
        if fault := _wrong(task, boot.endpoint):
            raise WarmupFailed(
                f"the {caches} boot {number} gave a wrong answer: {fault}\n"
                f"run the boot gate: pytest --model {task.family.name} --lane "
                f"{task.lane.name} -m boot"
            )
        total_s = first_s + time.monotonic() - begun_s
        next_s = _first_answer(task, boot.endpoint)
        logged_s = startup.read_log(Path(boot.evidence["log"])).phases_s
        return WarmupBoot(
            caches,
            phases(marks.at_s, logged_s, task.settings.marks, health_s, total_s),
            health_s,
            total_s,
            first_s - health_s,
            next_s,
        )
    finally:
        server.stop(GRACE_S)


def _first_answer(task: WarmupTask, endpoint: Endpoint) -> float:
    """Repeat the request that proved the boot; return how long it takes, in seconds."""
    begun_s = time.monotonic()
    try:
        server_ready.first_answer(
            endpoint, task.limits.stall_s, pools=task.family.pooling is not None
        )
    except NotServing as error:
        raise WarmupFailed(f"the server answered once, but not again: {error}") from error
    return time.monotonic() - begun_s


def _wrong(task: WarmupTask, endpoint: Endpoint) -> str:
    """Return what is wrong with the answer to a plain question; '' for a right answer."""
    if task.family.pooling is not None:
        return ""  # the proof of the boot was a vector
    question = next(each for each in conversations.load_all(task.project) if each.name == QUESTION)
    try:
        answer = Chat(endpoint, task.family).whole(question, ANSWER_TOKENS)
    except (openai.OpenAIError, httpx.HTTPError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    if fault := why_degenerate(answer.content or answer.reasoning, task.family.markers):
        return fault
    words = question.answer_holds
    if answer.content and words and not any(
        word.lower() in answer.content.lower() for word in words
    ):  # fmt: skip
        return f"none of {words} is in the answer {answer.content!r}"
    return ""


def _forget_pages(folder: Path) -> None:
    """Drop a checkpoint's files from the page cache: the next boot reads them from disk."""
    if not folder.is_dir():
        return
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
