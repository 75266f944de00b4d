"""Notes on the replay of a captured request: what its answer can and cannot show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.incidents import expectation
from pytest_vllm_gates.incidents.importers import CHAT, COMPLETIONS, RESPONSES
from pytest_vllm_gates.incidents.parts import body_of
from pytest_vllm_gates.incidents.types import CAPTURED
from pytest_vllm_gates.redaction.values import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.incidents.read import IncidentFolder

TIMES = 20
OF_THE_WEIGHTS = ("calls", "has", "sense")
"""The kinds of expectations that the output of another model meets or misses by chance."""


def sampling(sends: Sequence[Sent], times_option: str) -> Iterator[str]:
    """Yield a note that one try shows little, if a request does not fix its sampling."""
    if any(map(_is_sampled, sends)):
        which = "this request is" if len(sends) == 1 else "some of these requests are"
        yield f"{which} sampled: one try shows little; {times_option} {TIMES} shows more"


def _is_sampled(sent: Sent) -> bool:
    body = body_of(sent)
    fixed = body.get("temperature") == 0 or body.get("top_k") == 1 or body.get("seed") is not None
    return not fixed and sent.path.partition("?")[0] in (CHAT, COMPLETIONS, RESPONSES)


def replaced_secrets(sends: Sequence[Sent]) -> Iterator[str]:
    """Yield a note with the number of secrets that were replaced in the requests."""
    count = sum(sent.body.count(REDACTED.encode()) for sent in sends)
    if count:
        words = "1 secret was" if count == 1 else f"{count} secrets were"
        yield f"{words} replaced in the prompt: the request is not the original"


def notes(
    incident_folder: IncidentFolder,
    *,
    times: int,
    stands_in: bool,
    times_option: str,
    url_option: str,
) -> Iterator[str]:
    """Yield the notes of a replay. `stands_in`: the miniature replaces the incident's weights."""
    if incident_folder.incident.gate != CAPTURED:
        return
    sends = [incident_folder.sent(send) for send in incident_folder.incident.sends]
    if times == 1:
        yield from sampling(sends, times_option)
    yield from replaced_secrets(sends)
    kinds = {expected.kind for expected in expectation.of(incident_folder)}
    if stands_in and not kinds.isdisjoint(OF_THE_WEIGHTS):
        yield (
            "the miniature's output differs from your model's: only status, frames and markers "
            f"count; {url_option} sends the requests to your server"
        )
