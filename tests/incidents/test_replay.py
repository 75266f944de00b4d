"""A replay sends an incident's requests in the same bytes, except for the model's name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from incident_folders_made import incident
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.catalog.matrix import Cell, ConversationRule
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.client.tape import Tape
from pytest_vllm_gates.conversations.walk import WIDE_TOKENS
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents import read as incidents_read, write as incidents_write
from pytest_vllm_gates.incidents.replay import AS_SENT, AsSent, ReplayedWalk
from pytest_vllm_gates.incidents.types import CellSends, RecordedWalk

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family

CELL = Cell("unset", "undeclared", "text", "unset", "hello")
STOPPING = replace(CELL, stop="occurs")
ASKED = ConversationRule(turns="hello", tools=("undeclared",), format="text", conversation="hello")
# As no program of ours would write it.
ODD = (
    b'{ "messages":[{"role":"user","content":"Say \\u0041 \\"model\\": \\"alias\\""}],\n'
    b'"max_tokens" : 50,"model" :  "alias", "return_token_ids":true%s}'
)
VARIANTS = {
    "whole": b"",
    "streamed": b', "stream": true, "stream_options": {"include_usage": true}',
    "widened": b', "stream": true, "stream_interval": 20',
    "stopping": b', "stop": ["sea"]',
}


def incident_folder_of(folder: Path, *, widened: bool = True) -> incidents_read.IncidentFolder:
    """Write an incident of two cells."""
    headers = {"x-request-id": "gates-odd"}
    sends = [
        Sent(
            "POST",
            "/v1/chat/completions",
            headers if variant == "streamed" else {},
            ODD % more,
            variant,
        )
        for variant, more in VARIANTS.items()
        if widened or variant != "widened"
    ]
    plain = CellSends(
        cell=CELL.traits, asked=ASKED, thinks=True, whole="whole", streamed="streamed",
        widened="widened" if widened else None,
    )  # fmt: skip
    stopping = CellSends(
        cell=STOPPING.traits, asked=ASKED, thinks=True, whole="stopping", unstopped="whole",
        stop="sea",
    )  # fmt: skip
    recorded = incident(walk=RecordedWalk(max_tokens=50, cells=(stopping, plain)))
    return incidents_read.read(incidents_write.write(folder, "odd", recorded, sends, {}))


def replayed(
    server: ScriptedModel, family: Family, incident_folder: incidents_read.IncidentFolder
) -> dict[str, Any]:
    endpoint = replace(server.endpoint, tape=Tape())
    assert incident_folder.incident.walk
    walk = ReplayedWalk(endpoint, family, incident_folder, incident_folder.incident.walk)
    cells = {exchange.cell: exchange for exchange in walk.run()}
    assert endpoint.tape
    sent = [request for request in endpoint.tape.of() if request.path == "/v1/chat/completions"]
    return {"cells": cells, "bodies": [request.body for request in sent], "sent": sent}


def generation(_: dict[str, Any]) -> Generation:
    return Generation("The sea is wide.", "Two words.")


def test_a_walk_goes_out_byte_for_byte(qwen: Family, tmp_path: Path) -> None:
    with running(ScriptedModel(generation)) as server:
        replay = replayed(server, qwen, incident_folder_of(tmp_path))
    for variant, more in VARIANTS.items():
        assert (ODD % more) in replay["bodies"], variant
    (streamed,) = [
        request for request in replay["sent"] if request.headers.get("x-request-id") == "gates-odd"
    ]
    assert json.loads(streamed.body)["stream_options"] == {"include_usage": True}
    assert not any(AS_SENT in request.headers for request in replay["sent"])


def test_replayed_answers_are_exchanges_for_the_gates(qwen: Family, tmp_path: Path) -> None:
    with running(ScriptedModel(generation)) as server:
        cells = replayed(server, qwen, incident_folder_of(tmp_path))["cells"]
    plain, stopping = cells[CELL], cells[STOPPING]
    assert plain.whole.content == plain.streamed.content == "The sea is wide."
    assert plain.stream.body.endswith(b"[DONE]\n\n")
    assert plain.request == {
        "messages": [{"role": "user", "content": 'Say A "model": "alias"'}],
        "max_tokens": 50,
        "return_token_ids": True,
    }
    assert (stopping.stop, stopping.unstopped.content) == ("sea", "The sea is wide.")
    assert stopping.request["stop"] == ["sea"]


def test_variant_that_was_not_recorded_is_sent_again(qwen: Family, tmp_path: Path) -> None:
    with running(ScriptedModel(generation)) as server:
        replayed(server, qwen, incident_folder_of(tmp_path, widened=False))
        wide = [body for body in server.chats_seen if body.get("stream_interval") == WIDE_TOKENS]
    assert len(wide) == 2
    assert all(body["messages"][0]["content"].startswith("Say A") for body in wide)


def test_request_that_is_not_a_chat_is_refused(qwen: Family, tmp_path: Path) -> None:
    cell = CellSends(cell=CELL.traits, asked=ASKED, thinks=True, whole="a")
    walk = RecordedWalk(max_tokens=1, cells=(cell,))
    sent = Sent("POST", "/v1/chat/completions", {}, b"no json", "a")
    folder = incidents_write.write(tmp_path, "a", incident(walk=walk), [sent], {})
    incident_folder = incidents_read.read(folder)
    with (
        running(ScriptedModel(generation)) as server,
        pytest.raises(UserError, match="has no chat request for 'a'"),
    ):
        ReplayedWalk(server.endpoint, qwen, incident_folder, walk).run()


def test_request_without_a_send_goes_out_unchanged(qwen: Family, tmp_path: Path) -> None:
    with running(ScriptedModel(generation)) as server:
        inner = httpx.HTTPTransport()
        chat = Chat(server.endpoint, qwen, AsSent(incident_folder_of(tmp_path), "alias", inner))
        chat.ask({"messages": [{"role": "user", "content": "Hello"}]})
        chat.client.close()
        assert server.chats_seen[-1]["messages"] == [{"role": "user", "content": "Hello"}]
