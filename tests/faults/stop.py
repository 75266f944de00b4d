"""Servers that stop in the wrong place or alter more than the end: the stop gate fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.fault import Faults
from faults.messages import Message, as_message
from pytest_vllm_gates.conversations.stop_strings import NEVER

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("stop")
WHERE = "answer_ends_at_its_stop"
IDLE = "stop_that_never_occurs_changes_nothing"
PIECES = "any_piece_of_the_answer_stops_it"
NAMES = "both_names_of_the_limit_mean_the_same"
LIMIT = "limit_is_kept_and_told"
CUT_CALL = "a_cut_call_is_told"
CUT = "what_is_cut_is_the_answers_beginning"


@FAULTS.add("asked", check="stop_string_is_not_in_the_answer", says=" contains the stop string '")
def shows_the_stop_string(exchange: Exchange) -> None:
    """A custom default: include_stop_str_in_output."""
    if exchange.body.get("stop"):
        exchange.body["include_stop_str_in_output"] = True


@FAULTS.add("asked", check=WHERE, says="The answer ends too early or too late")
def knows_no_stop_strings(exchange: Exchange) -> None:
    """A gateway drops the field."""
    exchange.body.pop("stop", None)


@FAULTS.add("asked", check=WHERE, says=" has to stop the answer at its token ")
def knows_no_stop_tokens(exchange: Exchange) -> None:
    """A gateway drops the field, which is vLLM's own."""
    exchange.body.pop("stop_token_ids", None)


@FAULTS.add("asked", check=PIECES, says="The answer does not end where a stop string first occurs")
def looks_at_one_stop_string_only(exchange: Exchange) -> None:
    """Only the first of several strings counts."""
    if len(exchange.body.get("stop") or ()) > 1:
        exchange.body["stop"] = exchange.body["stop"][:1]


@FAULTS.add("asked", check=PIECES, says="\\n")
def looks_at_single_lines_only(exchange: Exchange) -> None:
    """A stop string with a line break in it never matches."""
    if exchange.body.get("stop"):
        single_lines = [stop for stop in exchange.body["stop"] if "\n" not in stop]
        exchange.body["stop"] = single_lines or None


@FAULTS.add("chat", check=WHERE, says="and ought to be")
@as_message
def stops_a_word_too_early(message: Message) -> None:
    """The text buffered for the stop string is lost with it."""
    if message.stopped and isinstance(message.stop_reason, str):
        message.content = message.content.rstrip().rpartition(" ")[0]


@FAULTS.add("chat", check=WHERE, says="and ought to be")
@as_message
def stops_a_word_too_late(message: Message) -> None:
    """Text that was generated during the search for the stop string is sent as well."""
    if message.stopped and message.content:
        message.content += " and then"


@FAULTS.add("chat", check=WHERE, says="finish_reason is 'length'")
@as_message
def takes_a_stop_for_the_limit(message: Message) -> None:
    """The client believes that the answer was cut."""
    if message.stopped:
        message.finish_reason = "length"


@FAULTS.add("chat", check=WHERE, says="reasoning is '' and ought to be", also=("reasoning",))
@as_message
def swallows_reasoning_that_is_stopped(message: Message) -> None:
    """The parser never sees the end of the thinking, and its buffer is lost (vllm#14170)."""
    if message.stopped and not message.content:
        message.reasoning = ""


@FAULTS.add(
    "chat",
    check=WHERE,
    says="content is 'They ask for the capital of' and ought to be ''",
    also=("reasoning",),
)
@as_message
def gives_stopped_reasoning_as_content(message: Message) -> None:
    """Without an end of the thinking all of it counts as the answer (vllm#14170)."""
    if message.stopped and not message.content:
        message.reasoning, message.content = "", message.reasoning.strip()


@FAULTS.add("chat", check=IDLE, says="which does not occur, content: differs from character")
@as_message
def holds_back_what_might_be_a_stop_string(message: Message) -> None:
    """The end of the answer stays in the stop buffer (vllm#51641)."""
    if message.stops == [NEVER] and not message.format:
        message.content = message.content[:-3]
        message.token_ids = []


@FAULTS.add("chat", check=IDLE, says="which does not occur, content: ", also=("reasoning",))
@as_message
def leaks_thinking_where_there_is_a_stop_list(message: Message) -> None:
    """Text and tokens part ways, and the tail of the thinking is content (vllm#51641)."""
    if message.stops == [NEVER] and message.reasoning and not message.format:
        message.reasoning, ending = message.reasoning[:-6], message.reasoning[-6:]
        message.content = f"{ending}</think>{message.content}"


@FAULTS.add("chat", check=IDLE, says="which does not occur, reasoning: ", also=("reasoning",))
@as_message
def cuts_thinking_where_there_is_a_stop_list(message: Message) -> None:
    """Any stop list truncates the reasoning, and content begins with its tag (vllm#14170)."""
    if message.stops == [NEVER] and message.reasoning and not message.format:
        message.reasoning = message.reasoning[: len(message.reasoning) // 2]
        message.content = f"/think>{message.content}"


@FAULTS.add("chat", check=IDLE, says="which does not occur, finish_reason: unstopped 'tool_calls'")
@as_message
def says_length_where_there_is_a_stop_list(message: Message) -> None:
    """With a stop list a complete call is reported as cut."""
    if message.stops == [NEVER] and message.choice == "required":
        message.finish_reason = "length"


@FAULTS.add("chat", check=LIMIT, says="finish_reason is 'stop', expected 'length'")
@as_message
def does_not_tell_the_limit(message: Message) -> None:
    """An answer that was cut looks whole."""
    if message.finish_reason == "length":
        message.finish_reason = "stop"


@FAULTS.add("chat", check=LIMIT, says="finish_reason is 'length', expected 'stop'")
@as_message
def tells_a_limit_it_did_not_reach(message: Message) -> None:
    """An answer of exactly the length that is allowed is whole."""
    if "two lines" in str(message.asked["messages"]) and message.asked["max_tokens"] < 100:
        message.finish_reason = "length"


@FAULTS.add("asked", check=LIMIT, says="tokens were generated, 1 were allowed")
def allows_a_few_tokens_more(exchange: Exchange) -> None:
    """The limit counts for the answer, and the thinking comes on top."""
    if exchange.body.get("max_tokens"):
        exchange.body["max_tokens"] += 4


@FAULTS.add("asked", check=LIMIT, says="finish_reason is 'length' after")
def allows_a_token_less(exchange: Exchange) -> None:
    """A gateway counts the limit one short."""
    exchange.body["max_tokens"] = max(1, exchange.body["max_tokens"] - 1)


@FAULTS.add("asked", check=NAMES, says=" tokens were generated, ")
def knows_the_old_name_of_the_limit_alone(exchange: Exchange) -> None:
    """The newer name is an unknown field, and the answer goes on to its end."""
    exchange.body.pop("max_completion_tokens", None)


@FAULTS.add("chat", check=CUT_CALL, says="finish_reason is 'tool_calls', expected 'length'")
@as_message
def takes_half_a_call_for_a_whole_one(message: Message) -> None:
    """A call that the limit cut is reported as complete (vllm#53269)."""
    if message.finish_reason == "length" and message.choice and message.asked["max_tokens"] > 1:
        message.finish_reason = "tool_calls"


@FAULTS.add("chat", check=CUT, says="content is '")
@as_message
def shows_cut_thinking_as_the_answer(message: Message) -> None:
    """The limit ends the thinking, and the parser returns it as content (vllm#35221)."""
    if message.finish_reason == "length" and not message.content and not message.choice:
        message.reasoning, message.content = "", message.reasoning
