"""Every prompt is rendered as recorded, by server and reference alike, with the right meaning.

Catches the template edited on the Hub, the tokenizer that changed under its name, the default
that flipped: prompts that differ from the model's training, which no error reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.client import http
from pytest_vllm_gates.conversations import stops
from pytest_vllm_gates.goldens import (
    Refused,
    changed_parts,
    disagreement,
    lock_golden,
    settings_golden,
)
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable
from pytest_vllm_gates.prompts import efforts, marked, meaning
from pytest_vllm_gates.prompts.layout import (
    conversation_prompt_golden,
    golden_diff,
    golden_name,
    lock_changed,
    token_diff,
    unlike_recorded,
)
from pytest_vllm_gates.prompts.random import (
    explore,
    first_wrong,
    prefix_changed,
    rendered_otherwise,
    requests,
    texts,
)
from pytest_vllm_gates.prompts.served import served_prompts, tokenized_prompt
from pytest_vllm_gates.server.types import Failure

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.goldens import Rendering
    from pytest_vllm_gates.prompts.marked import MarkedPrompt, ServedPrompt
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch

pytestmark = [pytest.mark.chat_template, pytest.mark.without_weights]

RANDOM_EXAMPLES = 40


@pytest.mark.usefixtures("launch")  # it boots while these files are read
def test_prompt_files_are_usable(
    prompt_files: ReferenceRenderer | Failure, evidence: Evidence
) -> None:
    evidence["usable"] = not isinstance(prompt_files, Failure)
    if isinstance(prompt_files, Failure):
        pytest.fail(prompt_files.what, pytrace=False)


def test_template_and_tokenizer_are_the_recorded(
    reference: ReferenceRenderer,
    family: Family,
    fitting: tuple[Conversation, ...],
    golden: Goldens,
    evidence: Evidence,
) -> None:
    locked = lock_golden(f"what prompts of {family.title} are made from", reference.locked_parts())
    evidence["sha256"] = locked.splitlines()[2:-2]
    recorded = golden.recorded("lock")
    if recorded is not None and recorded != locked and not golden.recording:
        differing = unlike_recorded(fitting, golden.recorded, reference, family)
        evidence["changed"] = changed_parts(recorded, locked)
        evidence["renders_differently"] = differing
        fail_if(lock_changed(evidence["changed"], differing, golden.command))
    golden.check("lock", locked)


def test_prompt_is_the_recorded(
    conversation: Conversation,
    reference: ReferenceRenderer,
    family: Family,
    golden: Goldens,
    evidence: Evidence,
) -> None:
    text = conversation_prompt_golden(conversation, reference, family)
    name = evidence["golden"] = golden_name(conversation)
    if differences := golden_diff(golden.recorded(name), text, reference.piece):
        evidence["prompt"] = differences
    golden.check(name, text)


def test_what_clients_send_is_rendered(
    *, marked_prompts: tuple[MarkedPrompt, ...], served_marked: tuple[ServedPrompt, ...],
    family: Family, serve: dict[str, Any], checking: Checking, evidence: Evidence,
) -> None:  # fmt: skip
    evidence["refused_by_decision"] = {
        refusal.name: f"{refusal.reason} ({refusal.reference})" for refusal in family.prompt.refuses
    }
    judged = marked.refused(marked_prompts, served_marked, family)
    then = marked.next_step(marked.REFUSED, judged[0], marked_prompts, family, serve)
    checking(*judged, "a client that sends these messages gets an error", then)


def test_all_that_was_sent_is_in_the_prompt(
    *, marked_prompts: tuple[MarkedPrompt, ...], served_marked: tuple[ServedPrompt, ...],
    family: Family, serve: dict[str, Any], checking: Checking, evidence: Evidence,
) -> None:  # fmt: skip
    evidence["texts"] = sum(len(prompt.pieces) for prompt in marked_prompts)
    evidence["dropped"] = {drop.what: drop.reference for drop in family.prompt.drops}
    judged = marked.incomplete(marked_prompts, served_marked, family)
    then = marked.next_step(marked.LOST, judged[0], marked_prompts, family, serve)
    checking(*judged, "a text of the client is not in the prompt", then)


def test_nothing_else_is_in_the_prompt(
    marked_prompts: tuple[MarkedPrompt, ...],
    served_marked: tuple[ServedPrompt, ...],
    family: Family,
    checking: Checking,
) -> None:
    judged = marked.unsent(marked_prompts, served_marked, family)
    checking(*judged, "the prompt contains text that the client did not send")


def test_server_renders_as_the_reference(
    *, conversation: Conversation, reference: ReferenceRenderer, family: Family, server: Endpoint,
    launch: Launch, evidence: Evidence,
) -> None:  # fmt: skip
    body = conversation.body(family)
    expected = reference.outcome(body)
    evidence["expected"] = (
        str(expected) if isinstance(expected, Refused) else len(expected.token_ids)
    )
    prompts = served_prompts(server, body, chats=launch.boot.generates)
    evidence["asked_through"] = list(prompts)
    if not prompts:
        raise NotApplicable("this server does not return the prompts of such requests")
    for endpoint, served in prompts.items():
        wrong = disagreement(expected, served)
        if wrong and not isinstance(expected, Refused) and not isinstance(served, Refused):
            of = ("the checkpoint's template", f"the server's, by {endpoint}")
            evidence["prompt"] = token_diff(expected.token_ids, served, of, reference.piece)
        fail_if(wrong and f"through {endpoint}: {wrong}")


def test_sampling_is_the_recorded(
    trivial: Conversation, family: Family, server: Endpoint, golden: Goldens, evidence: Evidence
) -> None:
    evidence["sampling"] = sampling = http.effective_sampling(server, trivial.body(family))
    if sampling is None:
        raise NotApplicable("this server does not report its effective sampling parameters")
    golden.check("sampling", settings_golden("sampling of a request that sets none", sampling))


@pytest.mark.parametrize("thinking", ["on", "off", "unset"])
def test_prompt_opens_what_the_family_says(
    thinking: str,
    trivial: Conversation,
    family: Family,
    reference: ReferenceRenderer,
    evidence: Evidence,
) -> None:
    conversation = trivial.model_copy(update={"thinking": thinking})
    if reason := conversation.why_not(family):
        raise NotApplicable(reason)
    text = reference.render(conversation.body(family)).text
    evidence["prompt_ends"] = text[-80:]
    default = family.thinking.default if family.thinking else None
    thinks = {"on": True, "off": False, "unset": default}[thinking]
    wrong = meaning.wrong_opening(family, text, thinks=thinks)
    fail_if(wrong and f"thinking {thinking}: {wrong}")


def test_thinking_switch_has_an_effect(
    trivial: Conversation, family: Family, server: Endpoint, evidence: Evidence
) -> None:
    if family.thinking is None or family.thinking.switch is None:
        raise NotApplicable(f"{family.name} has no thinking switch")
    prompts = {
        state: http.tokenize(server, trivial.model_copy(update={"thinking": state}).body(family))
        for state in ("on", "off", "unset")
    }
    evidence["tokens"] = {state: len(ids) for state, ids in prompts.items()}
    fail_if(meaning.switch_has_no_effect(family, prompts))


def test_efforts_that_clients_send_are_taken_or_refused(
    *, trivial: Conversation, family: Family, reference: ReferenceRenderer, server: Endpoint,
    launch: Launch, checking: Checking,
) -> None:  # fmt: skip
    judged = efforts.served(trivial, family, reference, server, chats=launch.boot.generates)
    checking(*judged, "a client that sends an effort gets the wrong prompt")


def test_parser_and_template_agree_on_the_default(
    family: Family, serve: dict[str, Any], checking: Checking, evidence: Evidence
) -> None:
    evidence["reasoning_parser"] = parser = serve.get("reasoning_parser")
    if serve.get("default_chat_template_kwargs"):
        raise NotApplicable("the server sets the switch if a request does not")
    case = Case("no switch sent", {"thinking": "unset"})
    wrong = meaning.parser_disagrees(family, parser)
    found = [Finding(case, wrong)] if wrong else []
    checking(found, [case], "Whole and streamed answers put the text in different fields")


def test_every_turn_has_its_marker(
    *, conversation: Conversation, family: Family, reference: ReferenceRenderer,
    checking: Checking, evidence: Evidence,
) -> None:  # fmt: skip
    body = conversation.body(family)
    evidence["roles"] = roles = [message["role"] for message in body["messages"]]
    try:
        text = reference.render(body).text
    except Refused as refused:
        raise NotApplicable(f"the template refuses this conversation: {refused}") from refused
    case = Case(conversation.title, {"shape": conversation.name})
    findings = [Finding(case, wrong) for wrong in meaning.missing_markers(family, text, roles)]
    checking(findings, [case], "the model cannot see who wrote a text")


def test_special_tokens_are_one_token_each(
    family: Family, reference: ReferenceRenderer, evidence: Evidence
) -> None:
    names = [*family.prompt.special_tokens, *family.prompt.stop_tokens]
    ids = {name: reference.token_ids(name) for name in dict.fromkeys(names)}
    evidence["token_ids"] = ids
    split = {name: token_ids for name, token_ids in ids.items() if len(token_ids) != 1}
    assert not split, f"special tokens that are not one token: {split}"


def test_stop_tokens_agree(
    family: Family, reference: ReferenceRenderer, evidence: Evidence
) -> None:
    stop_ids = {name: reference.token_ids(name) for name in family.prompt.stop_tokens}
    evidence["family"] = stop_ids
    evidence["checkpoint"] = sorted(reference.stop_ids())
    fail_if(meaning.stops_disagree(stop_ids, reference.stop_ids()))


def test_server_stops_where_the_family_does(
    plain_prompt: Rendering,
    family: Family,
    reference: ReferenceRenderer,
    server: Endpoint,
    evidence: Evidence,
) -> None:
    ids = meaning.ids_that_may_stop(family, reference)
    evidence["finish_reasons"] = ends = stops.finish_reasons(server, plain_prompt.token_ids, ids)
    fail_if("\n".join(meaning.wrong_stops(ends, family.prompt.stop_tokens)))


def test_ids_round_trip(
    trivial: Conversation, family: Family, reference: ReferenceRenderer, server: Endpoint,
    evidence: Evidence,
) -> None:  # fmt: skip
    prompt = reference.render(trivial.body(family))
    text = http.detokenize(server, prompt.token_ids)
    evidence["characters"] = len(text)
    assert text == prompt.text, (
        f"the prompt's ids detokenise to {text[:200]!r}, not to {prompt.text[:200]!r}"
    )


def test_random_conversations_render_alike(
    *, family: Family, reference: ReferenceRenderer, server: Endpoint, checking: Checking,
    evidence: Evidence,
) -> None:  # fmt: skip
    evidence["examples"] = RANDOM_EXAMPLES
    case = Case("random conversations")
    wrong = first_wrong(
        lambda body: rendered_otherwise(
            body, reference, lambda same: tokenized_prompt(server, same)
        ),
        lambda says: checking.knows([Finding(case, says)], [case]),
        RANDOM_EXAMPLES,
        requests(family),
    )
    checking([Finding(case, wrong)] if wrong else [], [case], "the server renders another prompt")


def test_user_text_opens_no_turn(
    trivial: Conversation, family: Family, reference: ReferenceRenderer, golden: Goldens,
    evidence: Evidence,
) -> None:  # fmt: skip
    states = meaning.injected(trivial.body(family), family, reference)
    evidence["injection"] = states
    golden.check("injection", settings_golden("special tokens a user's text can write", states))


def test_another_turn_keeps_the_earlier_tokens(
    family: Family, reference: ReferenceRenderer, evidence: Evidence
) -> None:
    if not family.prompt.prefix_stable:
        raise NotApplicable(f"{family.name} renders earlier turns anew when one is added")
    evidence["examples"] = RANDOM_EXAMPLES

    def check(body: dict[str, Any], text: str) -> None:
        fail_if(prefix_changed(body, text, reference))

    explore(check, RANDOM_EXAMPLES, requests(family), texts())


def fail_if(wrong: str | None) -> None:
    """Fail the test with this sentence, if there is one."""
    if wrong:
        pytest.fail(wrong, pytrace=False)
