"""Servers that put thinking, answers and markers in the wrong field: the reasoning gate fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.fault import Faults
from faults.messages import Message, as_message

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("reasoning")
END = "</think>"
CONTINUED = "a_begun_answer_is_continued"


@FAULTS.add(
    "chat",
    check="thinking_off_answers_at_once",
    says="thinking is off, and reasoning is 'The capital of France is Paris.'",
    also=("structured", "tools"),  # where text follows a forced call
)
@as_message
def answers_in_its_reasoning_when_not_to_think(message: Message) -> None:
    """The parser does not know the switch, content is null (vllm#23429)."""
    if message.thinking is False:
        message.reasoning, message.content = message.content, ""


@FAULTS.add(
    "chat",
    check="an_ended_answer_is_there",
    says="neither content nor a call (everything is in reasoning)",
    also=("structured",),
)
@as_message
def answers_in_its_reasoning_when_no_switch_is_sent(message: Message) -> None:
    """Template and parser have other defaults (vllm-deepseek-v4-sm89#100)."""
    if message.thinking is None:
        message.reasoning, message.content = message.reasoning + message.content, ""


@FAULTS.add(
    "chat",
    check="no_marker_reaches_a_field",
    says="content contains the marker '</think>'",
    also=("structured",),
)
@as_message
def thinks_aloud(message: Message) -> None:
    """No reasoning parser: all of it is content (vllm#54744, #13375)."""
    if message.thinking:
        end = END if message.content or message.calls else ""
        message.content = f"{message.reasoning}{end}{message.content}"
        message.reasoning = ""


@FAULTS.add(
    "chat",
    check="thinking_on_thinks",
    says="thinking is on, and reasoning is empty",
)
@as_message
def thinks_aloud_after_a_tools_result(message: Message) -> None:
    """In the third turn the thinking is content, without its tags (vllm#27703)."""
    if message.after_tool and not message.format:
        message.content = message.reasoning + message.content
        message.reasoning = ""


@FAULTS.add(
    "chat",
    check="thinking_on_thinks",
    says="thinking is on, and reasoning is empty",
    also=("stop",),
)
@as_message
def hides_its_thinking(message: Message) -> None:
    """A gateway takes reasoning out: the client sees none (vllm#37558)."""
    if message.thinking:
        message.reasoning = ""


@FAULTS.add("asked", check="thinking_on_thinks", says="thinking is on, and reasoning is empty")
def loses_the_switch_that_is_on(exchange: Exchange) -> None:
    """Thinking was requested, and the template gets the opposite."""
    kwargs = exchange.body.get("chat_template_kwargs") or {}
    if kwargs.get("enable_thinking"):
        exchange.body["chat_template_kwargs"] = {**kwargs, "enable_thinking": False}


@FAULTS.add("asked", check="thinking_off_answers_at_once", says="thinking is off, and reasoning")
def loses_the_switch_that_is_off(exchange: Exchange) -> None:
    """A gateway lets only the fields pass that it knows: the client waits for thinking."""
    kwargs = exchange.body.get("chat_template_kwargs") or {}
    if kwargs.get("enable_thinking") is False and "structured_outputs" not in exchange.body:
        exchange.body.pop("chat_template_kwargs")


@FAULTS.add("asked", check="thinking_on_thinks", says="thinking is on, and reasoning is empty")
def stops_thinking_for_json(exchange: Exchange) -> None:
    """A format silently turns thinking off (vllm#47027)."""
    if "response_format" in exchange.body:
        exchange.body["chat_template_kwargs"] = {"enable_thinking": False}


@FAULTS.add("chat", check="nothing_said_is_lost", says="reasoning is ")
@as_message
def loses_the_end_of_its_thinking(message: Message) -> None:
    """Text that was buffered during the search for the end tag is not flushed."""
    if message.content or not message.stopped:
        message.reasoning = message.reasoning[:-2]


@FAULTS.add("chat", check="nothing_said_is_lost", says="content is 'The capital of France is Pari'")
@as_message
def loses_the_end_of_its_answer(message: Message) -> None:
    """The last token before the stop token is dropped with it."""
    if message.thinking is False and not (message.stopped or message.format or message.calls):
        message.content = message.content[:-2]


@FAULTS.add("chat", check="nothing_said_is_lost", says="reasoning is 'They ask for the'")
@as_message
def continues_its_thinking_in_the_answer(message: Message) -> None:
    """The first chunk is reasoning, the rest is content (vllm#29408)."""
    words = message.reasoning.split(" ")
    if message.thinking and not message.calls and not message.format:
        message.reasoning = " ".join(words[:4])
        message.content = " ".join(words[4:]) + message.content


@FAULTS.add(
    "chat",
    check="nothing_said_is_lost",
    says="content is 'thought They ask for the capital",
    also=("structured",),
)
@as_message
def answers_before_it_thinks(message: Message) -> None:
    """Text before the tag that opens the thinking escapes the parser (vllm#50938)."""
    if message.thinking and message.content:
        message.content = f"thought {message.reasoning[:25]}{message.content}"


@FAULTS.add(
    "chat", check="no_marker_reaches_a_field", says="reasoning contains the marker '<think>'"
)
@as_message
def shows_where_its_thinking_begins(message: Message) -> None:
    """The parser expects the tag in the prompt, and the model wrote it."""
    if message.reasoning and message.thinking:
        message.reasoning = f"<think>\n{message.reasoning}"


@FAULTS.add(
    "chat", check="no_marker_reaches_a_field", says="content contains the marker '<|im_end|>'"
)
@as_message
def prints_the_end_of_its_turn(message: Message) -> None:
    """The token that stops the model is detokenised with the text."""
    has_text_only = message.content and not message.calls
    if message.choice and has_text_only and not message.format and not message.stopped:
        message.content += "<|im_end|>"


@FAULTS.add(
    "chat", check="no_marker_reaches_a_field", says="content contains the marker '<tool_call>'"
)
@as_message
def leaves_the_tag_of_a_call_in_the_answer(message: Message) -> None:
    """The call is found, and its tag stays behind as text (vllm#39468)."""
    if message.calls and not message.content.strip():
        message.content = "<tool_call>"


@FAULTS.add("chat", check="an_ended_answer_is_there", says="finish_reason is 'stop', and there is")
@as_message
def ends_without_an_answer(message: Message) -> None:
    """The answer is lost, and the server reports the end."""
    if len(message.asked["messages"]) > 1 and not message.format and not message.stopped:
        message.content = ""


@FAULTS.add(
    "chat", check="an_ended_answer_is_there", says="finish_reason is 'eos'", also=("streaming",)
)
@as_message
def ends_in_a_word_of_its_own(message: Message) -> None:
    """A gateway passes on the engine's own reason."""
    if message.finish_reason == "stop" and not message.stopped:
        message.finish_reason = "eos"


@FAULTS.add("asked", check=CONTINUED, says="the server begins a new answer")
def begins_continued_answers_anew(exchange: Exchange) -> None:
    """A gateway does not know that the last message is to be continued."""
    for name in ("continue_final_message", "add_generation_prompt"):
        exchange.body.pop(name, None)


@FAULTS.add("chat", check=CONTINUED, says="the answer repeats the text that it has to continue: ")
@as_message
def repeats_what_was_begun(message: Message) -> None:
    """The client has it already, and shows it twice."""
    if message.asked.get("continue_final_message"):
        message.content = message.asked["messages"][-1]["content"] + message.content


@FAULTS.add("chat", check="usage_counts_the_tokens", says="usage counts 23 tokens, and 22 token")
def counts_one_token_twice(exchange: Exchange) -> None:
    """The bill counts the stop token once more."""
    choices = [*exchange.choices]
    by_itself = not any(choice.get("stop_reason") for choice in choices)
    has_stopped = any(choice.get("finish_reason") == "stop" for choice in choices)
    for event in exchange.events:
        if (usage := event.get("usage")) and has_stopped and by_itself:
            usage["completion_tokens"] += 1
            usage["total_tokens"] += 1


@FAULTS.add("chat", check="nothing_said_is_lost", says=" ?C.', and the tokens contain")
@as_message
def writes_question_marks(message: Message) -> None:
    """Text that is not ASCII is lost between two encodings."""
    message.content = message.content.encode("ascii", "replace").decode()


@FAULTS.add("chat", check="reasoning_comes_under_the_recorded_key", says="reasoning_content")
def calls_reasoning_by_its_old_name(exchange: Exchange) -> None:
    """Clients that read `reasoning` see none (vllm#37558)."""
    _rename(exchange)


@FAULTS.add("stream", check="reasoning_comes_under_the_recorded_key", says="reasoning_content")
def streams_reasoning_by_its_old_name(exchange: Exchange) -> None:
    """One of the two modes still has `reasoning_content`."""
    _rename(exchange)


def _rename(exchange: Exchange) -> None:
    for part in exchange.parts:
        if "reasoning" in part:
            part["reasoning_content"] = part.pop("reasoning")
