"""Judges dialogues: a conversation has the same meaning and counts in every dialect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.untyped import MISREADINGS, records, shown
from pytest_vllm_gates.conversations.checks.agreement import canonical, differences
from pytest_vllm_gates.conversations.checks.chunks import SPLIT
from pytest_vllm_gates.dialects import (
    completions,
    events_messages,
    events_responses,
    messages,
    responses,
)
from pytest_vllm_gates.dialects.types import COMPLETIONS, MESSAGES, RESPONSES, STREAM, WHOLE
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.dialects.types import Dialogues, HeldDialogue, Reply

MEANING: Mapping[str, Callable[[Mapping[str, object]], Answer]] = {
    RESPONSES: responses.answer, MESSAGES: messages.answer, COMPLETIONS: completions.answer,
}  # fmt: skip
LIMIT = "length"


def meaning(reply: Reply) -> Answer | None:
    """Return the meaning of a reply, as the official client read it; None if it is unreadable."""
    body = reply.assembled if reply.mode == STREAM else reply.body
    try:
        return MEANING[reply.dialect](body)
    except MISREADINGS:
        return None


def unread(reply: Reply) -> str | None:
    """Return the official client's failure to read a reply; None if it read everything."""
    if reply.complaint:
        return f"the official client raises {reply.complaint}"
    if meaning(reply) is None:
        return "the official client reads no answer in it"
    return None


def event_faults(reply: Reply) -> Iterator[str]:
    """Yield the faults in the events of a stream."""
    if reply.dialect == RESPONSES:
        yield from events_responses.faults(reply.events)
    elif reply.dialect == MESSAGES:
        yield from events_messages.faults(reply.events)
        yield from events_messages.unreadable_inputs(reply.events)
    else:
        yield from _chunk_faults(reply)
    for event in reply.events:
        for text in _pieces(event.data):
            if SPLIT.search(text):
                yield f"an event splits a character: {shown(text)} in {event.kind or 'a chunk'}"


def _pieces(data: Mapping[str, object]) -> Iterator[str]:
    """Yield the texts that an event adds to an answer."""
    added = [data.get("delta"), *(choice.get("text") for choice in records(data.get("choices")))]
    for piece in added:
        for text in piece.values() if isinstance(piece, dict) else [piece]:
            if isinstance(text, str):
                yield text


def _chunk_faults(reply: Reply) -> Iterator[str]:
    if not reply.done:
        yield "the stream does not end in '[DONE]'"
    for name in ("id", "model", "created"):
        values = {str(event.data.get(name)) for event in reply.events}
        if len(values) != 1:
            yield f"the chunks of one stream have the {name}s {', '.join(sorted(values)[:3])}"
    choices = [each for event in reply.events for each in records(event.data.get("choices"))]
    finished = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    if len(finished) != 1:
        yield f"{len(finished)} chunks have a finish_reason"


def stream_findings(dialogues: Dialogues) -> Iterator[Finding]:
    """Yield differences between a dialect's assembled stream and its whole answer."""
    for dialogue, reply in dialogues.answered:
        if reply.mode != STREAM:
            continue
        whole = dialogue.of(reply.dialect, WHOLE)
        first, second = meaning(whole) if whole else None, meaning(reply)
        if first is None or second is None or _elsewhere(dialogue, first, second):
            continue
        for sentence in _compared(dialogue, first, second, (WHOLE, "streamed")):
            yield Finding(reply.finding_case, sentence)


def meaning_findings(dialogues: Dialogues) -> Iterator[Finding]:
    """Yield differences in meaning between a dialect's whole answer and the chat's."""
    for dialogue, reply in dialogues.answered:
        spoken = meaning(reply)
        if reply.mode != WHOLE or spoken is None:
            continue
        if reply.dialect == COMPLETIONS:
            sentences = _unparsed(dialogue.chat, spoken)
        elif _elsewhere(dialogue, dialogue.chat, spoken):
            continue
        else:
            chat = replace(_named(dialogue.chat), usage=spoken.usage)
            sentences = _compared(dialogue, chat, spoken, ("chat", reply.dialect))
        for sentence in sentences:
            yield Finding(reply.finding_case, sentence)


def _compared(
    dialogue: HeldDialogue, first: Answer, second: Answer, names: tuple[str, str]
) -> Iterator[str]:
    """Yield the differences of two answers, without calls that the limit cut: parsers differ there.

    Another check judges whether the limit is reported.
    """
    if dialogue.limit or dialogue.is_cut:
        calls = bool(dialogue.chat_request.get("tools"))
        first, second = _begun(first, calls=calls), _begun(second, calls=calls)
    yield from differences(first, second, names)
    if RESPONSES not in names:
        yield from _stopped_otherwise(first, second, names)


def _stopped_otherwise(first: Answer, second: Answer, names: tuple[str, str]) -> Iterator[str]:
    one, other = _stop_string(first), _stop_string(second)
    if one != other:
        yield f"stop string: {names[0]} {one!r}, {names[1]} {other!r}"


def _begun(answer: Answer, *, calls: bool) -> Answer:
    """Return the comparable part of a cut answer; half a call may be text, or not."""
    content = "" if calls else answer.content
    return replace(answer, content=content, tool_calls=(), finish_reason=None)


def _stop_string(answer: Answer) -> str | None:
    return answer.stop_reason if isinstance(answer.stop_reason, str) else None


def limit_findings(dialogues: Dialogues) -> Iterator[Finding]:
    """Yield answers that the token limit cut and that do not report it."""
    for dialogue, reply in dialogues.answered:
        spoken = meaning(reply)
        if not dialogue.limit or spoken is None or spoken.usage is None:
            continue
        used = spoken.usage.completion_tokens
        if used > dialogue.limit:
            sentence = f"the answer has {used} tokens, and the limit is {dialogue.limit}"
            yield Finding(reply.finding_case, sentence)
        elif used == dialogue.limit and spoken.finish_reason != LIMIT:
            yield Finding(reply.finding_case, f"the limit cut it, and it ends in {_end(reply)}")
        elif reply.dialect == RESPONSES and used == dialogue.limit:
            body = reply.assembled if reply.mode == STREAM else reply.body
            for sentence in events_responses.cut_faults(body):
                yield Finding(reply.finding_case, sentence)


def _end(reply: Reply) -> str:
    """Return the field that reports how a reply ends."""
    body = reply.assembled if reply.mode == STREAM else reply.body
    if reply.dialect == COMPLETIONS:
        return f"finish_reason {body['choices'][0].get('finish_reason')!r}"
    name = "status" if reply.dialect == RESPONSES else "stop_reason"
    return f"{name} {body.get(name)!r}"


def _unparsed(chat: Answer, spoken: Answer) -> Iterator[str]:
    """Yield parts of a chat that the completion of the same tokens does not have."""
    yield from _stopped_otherwise(chat, spoken, ("chat", COMPLETIONS))
    if chat.token_ids and spoken.token_ids and chat.token_ids != spoken.token_ids:
        yield f"tokens: chat {shown(chat.token_ids)}, completions {shown(spoken.token_ids)}"
        return
    for name, text in (("reasoning", chat.reasoning), ("content", chat.content)):
        if text.strip() not in spoken.content:
            yield f"{name}: {shown(text.strip())} is not in the text {shown(spoken.content)}"
    finish = "stop" if chat.finish_reason == "tool_calls" else chat.finish_reason
    if spoken.finish_reason != finish:
        yield f"finish_reason: chat {finish!r}, completions {spoken.finish_reason!r}"


def _named(chat: Answer) -> Answer:
    """Return a chat's answer with the finish reason of the other dialects.

    OpenAI's chats end a call of a named tool with `stop`; the others report a tool call.
    """
    calls = chat.tool_calls and chat.finish_reason == "stop"
    return replace(chat, finish_reason="tool_calls") if calls else chat


def _elsewhere(dialogue: HeldDialogue, first: Answer, second: Answer) -> bool:
    """Return whether two answers were generated differently: a text in both differs inside.

    Rounding in another batch may decide a near tie, but not in a text that a format forces.
    Different prompt tokens, which are a separate finding, lead to another answer.
    """
    prompts = {each.usage.prompt_tokens for each in (first, second) if each.usage}
    if not dialogue.near_tie and len(prompts) <= 1:
        return False
    texts = [(first.reasoning, second.reasoning)]
    if not dialogue.chat_request.get("response_format"):
        texts.append((first.content, second.content))
    if [call.name for call in first.tool_calls] == [call.name for call in second.tool_calls]:
        pairs = zip(first.tool_calls, second.tool_calls, strict=True)
        texts += [(canonical(a.arguments), canonical(b.arguments)) for a, b in pairs]
    return any(_part_inside(one.strip(), other.strip()) for one, other in texts)


def _part_inside(one: str, other: str) -> bool:
    return bool(one and other) and not (one.startswith(other) or other.startswith(one))


def token_findings(dialogues: Dialogues) -> Iterator[Finding]:
    """Yield dialects that count or render tokens differently from the chat."""
    for dialogue in dialogues.dialogues:
        usage = dialogue.chat.usage
        for reply in dialogue.replies:
            spoken = meaning(reply) if reply.answered else None
            if spoken and usage:
                for sentence in _usage_faults(dialogue, reply, spoken):
                    yield Finding(reply.finding_case, sentence)
        for case, sentence in _count_faults(dialogue):
            yield Finding(case, sentence)


def _usage_faults(dialogue: HeldDialogue, reply: Reply, spoken: Answer) -> Iterator[str]:
    chat = dialogue.chat.usage
    if spoken.usage is None:
        yield "usage is missing"
    elif chat and spoken.usage.prompt_tokens != chat.prompt_tokens:
        told = spoken.usage.prompt_tokens
        yield (
            f"input tokens: chat {chat.prompt_tokens}, {reply.dialect} {told} "
            f"({told - chat.prompt_tokens:+})"
        )
    elif (
        chat
        and spoken.usage.completion_tokens != chat.completion_tokens
        and not _elsewhere(dialogue, dialogue.chat, spoken)
    ):
        yield (
            f"output tokens: chat {chat.completion_tokens}, "
            f"{reply.dialect} {spoken.usage.completion_tokens}"
        )


def _count_faults(dialogue: HeldDialogue) -> Iterator[tuple[Case, str]]:
    usage = dialogue.chat.usage
    expected = len(dialogue.prompt_ids) or (usage.prompt_tokens if usage else 0)
    for path, count in dialogue.counts.items():
        case = count_case(dialogue, path)
        rendered = dialogue.rendered.get(path)
        if rendered and rendered == (*dialogue.prompt_ids[:1], *dialogue.prompt_ids):
            yield case, "the prompt's first token comes twice"
        elif count != expected:
            yield case, f"tokens of the prompt: chat {expected}, {path} {count}"
        elif rendered and dialogue.prompt_ids and rendered != dialogue.prompt_ids:
            pairs = enumerate(zip(rendered, dialogue.prompt_ids, strict=True))
            at = next(number for number, (one, other) in pairs if one != other)
            yield case, f"the prompt's tokens differ from token {at} on"
        for name in ("temperature", "max_tokens"):
            in_effect = dialogue.sampling.get(path, {})
            if name in in_effect and in_effect[name] != dialogue.chat_request[name]:
                asked = dialogue.chat_request[name]
                yield case, f"{name} {asked} was requested, {shown(in_effect[name])} is in effect"


def count_case(dialogue: HeldDialogue, path: str) -> Case:
    """Return a route that counts the tokens of a dialogue's prompt, as a case."""
    traits = {"dialect": path, "mode": "count", "case": dialogue.name}
    return Case(f"{path}: {dialogue.name}", traits, dialogue.count_requests.get(path))
