"""Why parts of a lane's bundle cannot be known from here, and how to make them known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.lane import ATTACHED
from pytest_vllm_gates.preflight import gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.checkpoints.fingerprint import Fingerprint

NO_MODEL = "chat template, tokenizer and checkpoint are compared with --model NAME"


def of_server(lane: Lane, version: str | None) -> Iterator[str]:
    """Yield the unknown parts of a server that runs already, and where to declare them."""
    gives = (
        "only the version of vLLM is known of its bundle, read from its server"
        if version
        else "its server did not answer GET /version"
    )
    yield f"{lane.name} is a URL: {gives}"
    if lane.name == ATTACHED:
        yield (
            "to declare its flags and its checkpoint, write lanes/NAME.toml with its base_url, "
            "[serve] and checkpoint"
        )
        return
    file = f"lanes/{lane.name}.toml"
    if lane.serve:
        yield f"for more flags of {lane.name}, add them to [serve] of {file}"
    else:
        yield f"for the flags of {lane.name}, list them in [serve] of {file}"
    if lane.checkpoint is None:
        yield (
            f"for the chat template, tokenizer and checkpoint of {lane.name}, add checkpoint = "
            f'"FOLDER or Hub id" to {file}'
        )


def of_command(lane: Lane) -> Iterator[str]:
    """Yield the unknown parts of a lane that another program serves."""
    if lane.command is None:
        return
    what = (
        "runs by a command: its packages, CUDA and files"
        if gather.serves_here(lane)
        else "runs by a command elsewhere: its packages, CUDA, files and machine"
    )
    yield (
        f"{lane.name} {what} cannot be read from here; where it runs, record them: "
        "vllm-gates lane freeze NAME --python PATH"
    )


def of_files(checkpoints: Iterable[tuple[Checkpoint, Fingerprint]]) -> Iterator[str]:
    """Yield the checkpoints whose files are not on this machine."""
    for checkpoint, checksums in checkpoints:
        if checkpoint.folder is None and checksums.config is None:
            yield (
                f"the files of {checkpoint.source} are not in the Hub's cache of this machine: "
                f"hf download {checkpoint.source}"
            )
