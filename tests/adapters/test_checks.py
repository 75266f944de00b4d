"""Every mix-up of adapters is found, and a healthy server's answers are not reported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.adapters import checks
from pytest_vllm_gates.adapters.types import (
    LOADED,
    LOADED_AGAIN,
    REPLACED,
    TAKEN_OUT,
    TAKEN_OUT_TWICE,
    AdapterAnswers,
    ListedModel,
    LoadStep,
    ModelAnswer,
    UnknownRefusal,
)
from pytest_vllm_gates.client.completion import Completion

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = {"": "Paris.", "sailor": "Aye! Paris.", "diary": "Monday: Paris."}
LONG = "long prompt"


def completion(model: str, text: str | None = None) -> Completion:
    shown = TEXTS[model] if text is None else text
    ids = tuple(map(ord, shown))
    return Completion(content=shown, finish_reason="stop", token_ids=ids, model=model or "base")


def answers(question: str = "capital") -> list[ModelAnswer]:
    return [ModelAnswer(model, question, completion(model)) for model in TEXTS]


def healthy() -> AdapterAnswers:
    missing = Completion(error='answered 404: {"error": …}')
    return AdapterAnswers(
        base=("base", "alias"),
        adapters=("diary", "sailor"),
        begins={"sailor": "Aye!", "diary": "Monday:"},
        listed=(
            ListedModel("base", "/weights", ""),
            ListedModel("sailor", "/sailor", "alias"),
            ListedModel("diary", "/diary", "base"),
        ),
        alone=answers(),
        streamed=answers(),
        base_after=answers()[:1],
        company=answers(),
        cold=answers(LONG),
        warm=[*answers(LONG), *answers(LONG)],
        refusals=[UnknownRefusal("/v1/chat/completions", {}, 404, "NotFoundError", "…")],
        unfit=[LoadStep("no weights", 500, "doesn't contain tensors", completion(""))],
        loads=[
            LoadStep(LOADED, 200, "Success", completion("sailor"), "sailor"),
            LoadStep(TAKEN_OUT, 200, "Success", missing),
            LoadStep(TAKEN_OUT_TWICE, 404, "cannot be found"),
            LoadStep(LOADED_AGAIN, 200, "Success", completion("sailor"), "sailor"),
            LoadStep(REPLACED, 200, "Success", completion("diary"), "diary"),
        ],
    )


CHECKS: dict[str, Callable[[AdapterAnswers], checks.Judged]] = {
    "lists": checks.lists,
    "names": checks.names,
    "differ": checks.differ,
    "stays": lambda asked: checks.stays(asked, invariant=True),
    "apart": lambda asked: checks.apart(asked, invariant=True),
    "on_prefixes": lambda asked: checks.on_prefixes(asked, invariant=True),
    "refuses": checks.refuses,
    "refuses_unfit": checks.refuses_unfit,
    "loads": lambda asked: checks.loads(asked, invariant=True),
}


def found(asked: AdapterAnswers) -> dict[str, list[str]]:
    """Return the findings of every check, by the check, without checks that found nothing."""
    sentences = {name: [one.says for one in check(asked)[0]] for name, check in CHECKS.items()}
    return {name: says for name, says in sentences.items() if says}


def test_a_healthy_server_passes_every_check() -> None:
    assert found(healthy()) == {}
    assert all(check(healthy())[1] for check in CHECKS.values())


def spoilt(name: str, place: int, text: str) -> AdapterAnswers:
    """Return healthy answers, but for the text of one."""
    asked = healthy()
    given: list[ModelAnswer] = getattr(asked, name)
    given[place] = replace(given[place], completion=completion(given[place].requested, text))
    return asked


@pytest.mark.parametrize(
    ("where", "place", "text", "check", "says"),
    [
        ("alone", 1, "Paris.", "differ", "its answers begin with 'Aye!': 'Paris.'"),
        ("alone", 0, "Aye! Paris.", "differ", "this is sailor's answer"),
        ("company", 1, "Monday: Paris.", "apart", "that is the answer of diary"),
        ("warm", 2, "Aye! Paris.", "on_prefixes", "that is the answer of sailor"),
        ("base_after", 0, "Aye! Paris.", "stays", "that is the answer of sailor"),
    ],
)
def test_an_answer_of_another_model_is_found(
    where: str, place: int, text: str, check: str, says: str
) -> None:
    assert says in found(spoilt(where, place, text))[check][0]


def test_an_adapter_that_changes_nothing_is_found_without_its_word() -> None:
    asked = healthy()
    asked.begins, asked.streamed = {}, []
    asked.alone[1] = replace(asked.alone[1], completion=completion("sailor", "Paris."))
    (finding,) = checks.differ(asked)[0]
    assert finding.case.name == "sailor and the base model"
    assert finding.says == "both give the same answers, such as 'Paris.'"
    # One answer of the same text is not a proof: its log-probabilities may differ.
    one = replace(completion("", "Paris."), candidates=({1: -0.1},))
    other = replace(completion("sailor", "Paris."), candidates=({1: -0.3},))
    asked.alone[0] = replace(asked.alone[0], completion=one)
    asked.alone[1] = replace(asked.alone[1], completion=other)
    assert checks.differ(asked)[0] == []


def test_the_list_of_models_has_each_adapter_once_with_its_base() -> None:
    asked = healthy()
    asked.listed = (asked.listed[0], replace(asked.listed[1], parent="other"))
    assert found(asked) == {
        "lists": [
            "/v1/models has 0 entries of it, not one",
            "its parent is 'other', not the base model",
        ]
    }


def test_answer_names_the_requested_adapter() -> None:
    asked = healthy()
    named = replace(asked.streamed[1].completion, model="base")
    asked.streamed[1] = replace(asked.streamed[1], completion=named)
    assert found(asked) == {"names": ["the answer names 'base' as its model"]}


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (UnknownRefusal("/v1/completions", {}, 200, "", "Paris."), "answered 200, not 404: Paris."),
        (
            UnknownRefusal("/v1/completions", {}, 404, "", "<html>"),
            "404 without an error in JSON: <html>",
        ),
        (
            UnknownRefusal("/v1/completions", {}, 0, "", "ReadError"),
            "answered 0, not 404: ReadError",
        ),
    ],
)
def test_an_unknown_adapter_is_a_clean_404(refusal: UnknownRefusal, says: str) -> None:
    asked = healthy()
    asked.refusals = [refusal]
    assert found(asked) == {"refuses": [says]}


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (
            LoadStep("another base model", 200, "", Completion(error="answered 500")),
            "it was loaded (200), and the first chat: answered 500",
        ),
        (
            LoadStep("another base model", 200, "", completion("")),
            "it was loaded (200), and a chat is answered with it",
        ),
        (
            LoadStep("another base model", 500, "", Completion(error="ConnectError")),
            "after it the base model gives no answer: ConnectError",
        ),
        (LoadStep("another base model", 0, "ReadError"), "no answer to the load: ReadError"),
    ],
)
def test_an_unfit_adapter_is_refused_when_it_is_loaded(step: LoadStep, says: str) -> None:
    asked = healthy()
    asked.unfit = [step]
    assert found(asked) == {"refuses_unfit": [says]}


@pytest.mark.parametrize(
    ("place", "step", "says"),
    [
        (0, LoadStep(LOADED, 400, "no"), "answered 400: no"),
        (
            1,
            LoadStep(TAKEN_OUT, 200, "", completion("sailor")),
            "it is unloaded, and still answers",
        ),
        (
            1,
            LoadStep(TAKEN_OUT, 200, "", Completion(error="answered 500: x")),
            "a chat with it is not a 404: answered 500",
        ),
        (2, LoadStep(TAKEN_OUT_TWICE, 200, "Success"), "answered 200, not 404: Success"),
        (
            4,
            LoadStep(REPLACED, 200, "", completion("sailor"), "diary"),
            "it does not answer as diary does",
        ),
    ],
)
def test_loading_and_unloading_take_effect(place: int, step: LoadStep, says: str) -> None:
    asked = healthy()
    asked.loads[place] = step
    ((sentence,),) = found(asked).values()
    assert sentence.startswith(says)


def test_server_that_stops_answering_is_reported() -> None:
    asked = healthy()
    asked.broke = "ConnectError: refused"
    assert found(asked) == {"differ": ["it stopped answering: ConnectError: refused"]}


def test_models_with_equal_answers_are_reported() -> None:
    assert not checks.all_alike(answers())
    assert checks.all_alike(
        [ModelAnswer("", "x", completion("")), ModelAnswer("a", "x", completion(""))]
    )
