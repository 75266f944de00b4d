"""Servers whose APIs give wrong whole answers: the dialects gate fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.dialects import (
    ANSWERS,
    APART,
    COMPLETIONS,
    COUNT,
    LIMIT,
    MEANS,
    MESSAGES,
    RESPONSES,
    TOKENS,
    TRIPS,
    TYPES,
    Part,
    asked,
    refused,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.exchange import Exchange


def items(exchange: Exchange, kind: str) -> Iterator[Part]:
    """Yield the output items of a type of a whole response."""
    for item in exchange.events[0]["output"]:
        if item["type"] == kind:
            yield item


def blocks(exchange: Exchange, kind: str) -> Iterator[Part]:
    """Yield the content blocks of a type of a whole message."""
    for block in exchange.events[0]["content"]:
        if block["type"] == kind:
            yield block


@whole(MESSAGES, ANSWERS, "answered 501: no tools")
def has_no_tools(exchange: Exchange) -> None:
    """One API does without tools."""
    if exchange.body.get("tools"):
        exchange.status = 501
        exchange.events = [{"type": "error", "error": {"type": "api_error", "message": "no tools"}}]


@whole(RESPONSES, ANSWERS, "the answer names '/models/qwen'")
def names_the_model_otherwise(exchange: Exchange) -> None:
    """A gateway answers with the name that the model has behind it."""
    exchange.events[0]["model"] = "/models/qwen"


@whole(COMPLETIONS, ANSWERS, "the answer names '/models/qwen'")
def names_a_completions_model_otherwise(exchange: Exchange) -> None:
    """A route that was forgotten when the others got an alias."""
    exchange.events[0]["model"] = "/models/qwen"


@whole(RESPONSES, TYPES, "call_id: Field required")
def gives_calls_no_id(exchange: Exchange) -> None:
    """A call's output cannot be sent back without one."""
    for item in items(exchange, "function_call"):
        del item["call_id"]


@whole(MESSAGES, TYPES, "the body: role: Field required")
def leaves_the_role_out(exchange: Exchange) -> None:
    """Fields with one value are not sent."""
    del exchange.events[0]["role"]


@whole(RESPONSES, TYPES, "arguments: Input should be a valid string")
def gives_arguments_as_an_object(exchange: Exchange) -> None:
    """Arguments are an object instead of JSON text."""
    for item in items(exchange, "function_call"):
        item["arguments"] = {"city": "Oslo"}


@whole(RESPONSES, TYPES, "is not known to the official client")
def has_an_item_nobody_knows(exchange: Exchange) -> None:
    """Reasoning comes as an item of a type of the server's own."""
    for item in items(exchange, "reasoning"):
        item["type"] = "thinking"


@whole(RESPONSES, MEANS, "reasoning: empty in the responses answer")
def loses_reasoning(exchange: Exchange) -> None:
    """The reasoning item is not made."""
    output = exchange.events[0]["output"]
    exchange.events[0]["output"] = [item for item in output if item["type"] != "reasoning"]


@whole(MESSAGES, MEANS, "content: ")
def shows_thinking_as_text(exchange: Exchange) -> None:
    """Thinking blocks are not made: the thinking is text."""
    for block in blocks(exchange, "thinking"):
        text = block.pop("thinking")
        del block["signature"]
        block |= {"type": "text", "text": text}


@whole(RESPONSES, MEANS, "tool_calls: 3 in the chat answer")
def gives_the_first_call(exchange: Exchange) -> None:
    """Only one of several parallel calls is kept."""
    calls = list(items(exchange, "function_call"))
    for call in calls[1:]:
        exchange.events[0]["output"].remove(call)


@whole(MESSAGES, MEANS, "tool_calls[0].arguments: chat ")
def gives_calls_no_input(exchange: Exchange) -> None:
    """The input of a call is empty."""
    for block in blocks(exchange, "tool_use"):
        block["input"] = {}


@whole(MESSAGES, MEANS, "finish_reason: chat 'tool_calls', messages 'stop'")
def ends_a_turn_at_a_call(exchange: Exchange) -> None:
    """An agent takes a call for the end of the conversation."""
    if exchange.events[0]["stop_reason"] == "tool_use":
        exchange.events[0]["stop_reason"] = "end_turn"


@whole(MESSAGES, MEANS, "stop string: chat ")
def tells_no_stop_sequence(exchange: Exchange) -> None:
    """The stop string that ended an answer is not reported."""
    exchange.events[0]["stop_sequence"] = None


@whole(MESSAGES, LIMIT, "the limit cut it, and it ends in stop_reason 'end_turn'")
def tells_no_limit(exchange: Exchange) -> None:
    """A message that was cut is reported as whole."""
    if exchange.events[0]["stop_reason"] == "max_tokens":
        exchange.events[0]["stop_reason"] = "end_turn"


@whole(RESPONSES, LIMIT, "the limit cut it, and it ends in status 'completed'")
def completes_what_was_cut(exchange: Exchange) -> None:
    """A response that was cut is reported as whole."""
    exchange.events[0] |= {"status": "completed", "incomplete_details": None}


@whole(RESPONSES, LIMIT, "incomplete_details.reason is None")
def tells_no_reason(exchange: Exchange) -> None:
    """A response is incomplete, without a reason."""
    exchange.events[0]["incomplete_details"] = None


@asked(RESPONSES, LIMIT, "tokens, and the limit is ")
def knows_no_max_output_tokens(exchange: Exchange) -> None:
    """The limit has another name in every API."""
    exchange.body.pop("max_output_tokens", None)


@whole(RESPONSES, TOKENS, "input tokens: chat ")
def counts_nothing(exchange: Exchange) -> None:
    """Usage is there, and zero."""
    exchange.events[0]["usage"] |= {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


@whole(RESPONSES, TOKENS, "usage is missing")
def has_no_usage(exchange: Exchange) -> None:
    """Usage is not made in one API."""
    exchange.events[0]["usage"] = None


@whole(COUNT, TOKENS, "tokens of the prompt: chat ")
def counts_without_tools(exchange: Exchange) -> None:
    """The route that counts leaves declarations out."""
    if exchange.body.get("tools"):
        exchange.events[0]["input_tokens"] -= 20


@whole("/tokenize", TOKENS, "tokens of the prompt: chat ")
def tokenizes_another_prompt(exchange: Exchange) -> None:
    """The route that tokenizes adds one token."""
    if "messages" in exchange.body:
        exchange.events[0]["tokens"].insert(0, 1)


@whole("/tokenize", TOKENS, "/tokenize, count ")
def counts_more_tokens_than_it_lists(exchange: Exchange) -> None:
    """The number beside the tokens is another route's."""
    exchange.events[0]["count"] += 1


@whole(COMPLETIONS, APART, "prompt 0 gets the answer that prompt 2 gets alone")
def turns_the_prompts_of_a_batch_round(exchange: Exchange) -> None:
    """Choices come in the order in which they ended, and are numbered anew."""
    choices = exchange.events[0]["choices"]
    for choice in choices:
        choice["index"] = len(choices) - 1 - choice["index"]
    choices.reverse()


@whole(COMPLETIONS, APART, "and the choices have the indices [0, 0, 0]")
def numbers_no_choices(exchange: Exchange) -> None:
    """Every prompt is the first one."""
    for choice in exchange.events[0]["choices"]:
        choice["index"] = 0


@whole(RESPONSES, ANSWERS, " in all")
def adds_responses_up_wrongly(exchange: Exchange) -> None:
    """The sum has a token that neither part has."""
    exchange.events[0]["usage"]["total_tokens"] += 1


@whole(RESPONSES, ANSWERS, "temperature: 0 was requested, and the response has 0.7")
def tells_the_temperature_of_its_default(exchange: Exchange) -> None:
    """A response names the settings of the server, and not those of the request."""
    exchange.events[0]["temperature"] = 0.7


@whole(RESPONSES, ANSWERS, "tool_choice: 'required' was requested, and the response has 'auto'")
def tells_no_tool_choice(exchange: Exchange) -> None:
    """A response reports `tool_choice` as auto."""
    exchange.events[0]["tool_choice"] = "auto"


@whole(RESPONSES, ANSWERS, "the response is completed, and has error: ")
def fails_beside_its_answer(exchange: Exchange) -> None:
    """A response that is whole has an error all the same."""
    exchange.events[0]["error"] = {"code": "server_error", "message": "out of memory"}


@whole(RESPONSES, ANSWERS, "item has the status 'in_progress'")
def leaves_items_in_progress(exchange: Exchange) -> None:
    """Items of a response that is completed are not."""
    for item in exchange.events[0]["output"]:
        item["status"] = "in_progress"


@whole(RESPONSES, ANSWERS, "usage counts no reasoning_tokens")
def counts_no_reasoning(exchange: Exchange) -> None:
    """The thinking is billed as the answer."""
    exchange.events[0]["usage"]["output_tokens_details"]["reasoning_tokens"] = 0


@whole(RESPONSES, ANSWERS, "text.format.type: 'json_schema' was requested, and the response has")
def tells_that_no_format_was_asked_for(exchange: Exchange) -> None:
    """The format of a response is reported as free text."""
    exchange.events[0]["text"] = {"format": {"type": "text"}}


@whole(RESPONSES, ANSWERS, "metadata: ")
def forgets_metadata(exchange: Exchange) -> None:
    """The metadata by which a client identifies its requests is not returned."""
    exchange.events[0]["metadata"] = None


@refused(MESSAGES, "and Anthropic's is 'error'")
def refuses_messages_as_openai_does(exchange: Exchange) -> None:
    """The error has OpenAI's form in Anthropic's API."""
    exchange.events[0].pop("type", None)


@refused(MESSAGES, "answered with 200, which a client reads as an answer")
def refuses_with_an_answer(exchange: Exchange) -> None:
    """A gateway answers an error with 200."""
    exchange.status = 200


@refused(RESPONSES, "answered with 500, which a client reads as a server error")
def fails_where_the_client_is_wrong(exchange: Exchange) -> None:
    """A client that retries on 5xx sends the wrong request again and again."""
    exchange.status = 500


@refused(RESPONSES, "the refusal has no error.message: {}")
def refuses_without_a_word(exchange: Exchange) -> None:
    """The body is empty."""
    exchange.events = [{}]


@refused(COMPLETIONS, "the refusal is text/plain")
def refuses_in_plain_text(exchange: Exchange) -> None:
    """A gateway's own error page."""
    exchange.text, exchange.kind = "bad request", "text/plain"


@whole("/detokenize", TRIPS, "/detokenize gives ")
def strips_texts_of_tokens(exchange: Exchange) -> None:
    """Blanks at the ends of a text are lost."""
    exchange.events[0]["prompt"] = exchange.events[0]["prompt"].strip()


@whole("/tokenize", TRIPS, "max_model_len is ")
def tells_another_context(exchange: Exchange) -> None:
    """The route reports twice the server's context."""
    exchange.events[0]["max_model_len"] *= 2


@whole("/v1/chat/completions/render", TOKENS, "the prompt's tokens differ from token 2 on")
def renders_another_chat(exchange: Exchange) -> None:
    """The prompt that is shown is not the one that is answered."""
    ids = exchange.events[0]["token_ids"]
    ids[2] = ids[1]


@whole("/v1/responses/render", TOKENS, "the prompt's tokens differ from token 1 on")
def renders_something_else(exchange: Exchange) -> None:
    """The route that renders has another template."""
    ids = exchange.events[0]["token_ids"]
    ids[1] = ids[2]


@asked("/v1/messages/render", TOKENS, "temperature 0 was requested, 1.0 is in effect")
def samples_with_a_default(exchange: Exchange) -> None:
    """One API drops the temperature: its answers are not repeatable."""
    exchange.body.pop("temperature", None)


@whole(COMPLETIONS, MEANS, "content: ")
def cuts_a_completion(exchange: Exchange) -> None:
    """A completion's text ends early."""
    for choice in exchange.choices:
        choice["text"] = choice["text"][:-4]


@whole(MESSAGES, ANSWERS, "other requests' answers")
def gives_all_messages_one_id(exchange: Exchange) -> None:
    """A gateway fills in a constant."""
    exchange.events[0]["id"] = "msg_1"


@whole(RESPONSES, ANSWERS, "is also a call's id in ")
def numbers_calls_in_each_answer(exchange: Exchange) -> None:
    """Every answer's calls begin with the same id: an agent takes one result for another's."""
    for number, item in enumerate(items(exchange, "function_call")):
        item["call_id"] = f"call_{number}"


@whole(MESSAGES, TYPES, "thinking has to come first")
def puts_thinking_last(exchange: Exchange) -> None:
    """Blocks are sorted by a gateway that reads the text first."""
    exchange.events[0]["content"].sort(key=lambda block: block["type"] == "thinking")


@whole(MESSAGES, TYPES, "is text without any text")
def begins_with_an_empty_block(exchange: Exchange) -> None:
    """A block is made for the content whether there is any or not."""
    content = exchange.events[0]["content"]
    thought = sum(block["type"] == "thinking" for block in content)
    content.insert(thought, {"type": "text", "text": ""})


@whole(MESSAGES, MEANS, "content: differs from character ")
def escapes_for_html(exchange: Exchange) -> None:
    """A gateway returns HTML pages."""
    for block in blocks(exchange, "text"):
        block["text"] = block["text"].replace("&", "&amp;").replace("<", "&lt;")


@whole(MESSAGES, MEANS, "tool_calls[0].arguments: ")
def gives_inputs_as_texts(exchange: Exchange) -> None:
    """A parameter of any type becomes text."""
    for block in blocks(exchange, "tool_use"):
        block["input"] = {name: str(value) for name, value in block["input"].items()}
