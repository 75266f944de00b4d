"""What is kept of wrong requests and their answers."""

from __future__ import annotations

from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.robustness.client import send_all
from pytest_vllm_gates.robustness.types import Repeat, WrongRequest

LARGE = 1_000_000


def test_reactions_keep_the_model_and_not_the_body() -> None:
    cases = [
        WrongRequest(name="large", body={"user": {"repeat": "x", "times": LARGE}}),
        WrongRequest(name="raw", raw=('"', Repeat(repeat="x", times=LARGE), '"')),
        WrongRequest(name="another model", body={"model": "other"}),
        WrongRequest(name="no model", without=("model",)),
    ]
    with running(ScriptedServer(lambda *_: (400, {"detail": "no"}))) as server:
        result = send_all(server.endpoint, cases, {}, 4096, Completion)
        sent_bytes = [len(request.data) for request in server.requests_seen]
    assert [reaction.model for reaction in result.reactions] == ["alias", "", "other", ""]
    assert min(sent_bytes[:2]) > LARGE
    assert len(repr(result)) < LARGE / 10
