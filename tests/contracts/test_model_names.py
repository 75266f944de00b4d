"""An answer names the model that was requested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.contracts import model_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.scripted import ServerAnswer

    from pytest_vllm_gates.contracts.model_names import ModelNames

CHAT = {"messages": [{"role": "user", "content": "Hello!"}]}
SERVED = [("alias", "/weights"), ("other", "/weights"), ("adapter", "/adapter")]


def asked(name: Callable[[str], str | None], served: list[tuple[str, str]] = SERVED) -> ModelNames:
    """Ask a server whose answers give the model this name."""

    def answer(path: str, body: dict[str, Any]) -> ServerAnswer:
        if path == "/v1/models":
            return 200, {"data": [{"id": model, "root": root} for model, root in served]}
        if body["model"] == "alias" and not name("alias"):
            return 404, {"error": {"message": "no such model"}}
        reply: dict[str, Any] = {"model": name(body["model"]), "choices": []}
        return 200, [reply, reply] if body.get("stream") else reply

    with running(ScriptedServer(answer)) as server:
        return model_names.ask(server.endpoint, CHAT)


@pytest.mark.parametrize("name", [lambda model: model, lambda _: "alias"], ids=["its own", "first"])
def test_a_name_of_the_same_model_is_right(name: Callable[[str], str]) -> None:
    names = asked(name)
    assert names.names == ("alias", "other")
    assert len(names.answers) == 4
    assert [*names.faults()] == []


def test_another_model_is_a_fault() -> None:
    sentences = [sentence for _, sentence in asked(lambda _: "adapter").faults()]
    assert sentences[0] == "'alias' was requested, and the answer is of 'adapter'"
    assert len(sentences) == 4


def test_a_name_that_is_refused_is_a_fault() -> None:
    sentences = [
        sentence
        for _, sentence in asked(lambda model: None if model == "alias" else model).faults()
    ]
    assert sentences == ["'alias' is served, and answered 404"] * 2


def test_a_model_without_a_root_has_one_name() -> None:
    names = asked(lambda model: model, [("other", "/weights")])
    assert names.names == ("alias",)
