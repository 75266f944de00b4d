"""Servers whose tool calls are unusable or dropped: the tools gate fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from faults.fault import Faults
from faults.messages import Call, Message, as_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange
    from faults.fault import Change

FAULTS = Faults("tools")
AGREE = "calls_and_finish_reason_agree"
STRICT = "strict_tools_keep_to_their_schema"
NAMED = "named_tool_is_called"
VALID = "calls_are_declared_and_valid"
IDS = "calls_have_ids"
CHOICE = "tool_choice_is_kept"
PARALLEL = "parallel_calls_can_be_switched_off"
LOST = "no_call_is_lost"
HOSTILE = "hostile_arguments_arrive_as_written"
TYPES = "arguments_keep_their_types"
SAMPLED = "sampled_calls_are_as_often_valid_as_recorded"
HOT = 0.5  # temperatures from here on are those of the sampled calls


def argument(says: str) -> Callable[[Callable[[str], Any]], Change]:
    """Make a fault of a function that rewrites the texts in calls with just one."""

    def declare(rewrite: Callable[[str], Any]) -> Change:
        def change(message: Message) -> None:
            for call in message.calls:
                values = {
                    name: rewrite(value) if name == "text" and isinstance(value, str) else value
                    for name, value in call.values.items()
                }
                if values != call.values:
                    call.values = values

        change.__name__, change.__doc__ = rewrite.__name__, rewrite.__doc__
        return FAULTS.add("chat", says=says, check=HOSTILE)(as_message(change))

    return declare


@FAULTS.add("chat", check=AGREE, says="finish_reason is 'tool_calls', and the answer has no call")
@as_message
def says_tool_calls_without_a_call(message: Message) -> None:
    """An agent waits for a call that never comes (vllm#44326)."""
    if message.choice == "auto" and message.thinking is not False:
        message.calls = []


@FAULTS.add(
    "chat",
    check=AGREE,
    says="finish_reason is 'stop', and the answer has calls: get_weather",
    also=("stop",),
)
@as_message
def says_stop_beside_a_call(message: Message) -> None:
    """An agent that looks at the finish reason never runs the tool."""
    if message.calls:
        message.finish_reason = "stop"


@FAULTS.add(
    "chat", check=VALID, says="tool_calls[0].name is 'getWeather'; declared are get_weather"
)
@as_message
def calls_a_tool_nobody_declared(message: Message) -> None:
    """The name is normalised on the way."""
    for call in message.calls:
        head, *parts = call.name.split("_")
        call.name = head + "".join(text.title() for text in parts)


@FAULTS.add("chat", check=VALID, says="tool_calls[0].arguments: 'city' is a required property")
@as_message
def loses_the_arguments(message: Message) -> None:
    """Arguments come empty (vllm-ascend#10182)."""
    for call in message.calls:
        call.arguments = "{}"


@FAULTS.add("chat", check=VALID, says="tool_calls[0].arguments is not JSON")
@as_message
def cuts_the_arguments_short(message: Message) -> None:
    """The last brace is lost (vllm#34449)."""
    for call in message.calls:
        call.arguments = call.arguments[:-1]


@FAULTS.add("chat", check=VALID, says="tool_calls[0].arguments is not an object")
@as_message
def quotes_the_arguments_once_more(message: Message) -> None:
    """JSON in a JSON string."""
    for call in message.calls:
        call.arguments = json.dumps(call.arguments)


@FAULTS.add(
    "whole",
    check=VALID,
    says="tool_calls[0].arguments is not JSON (Expecting property name enclosed in double quotes",
    also=("streaming",),
)
def gives_arguments_as_an_object(exchange: Exchange) -> None:
    """A gateway parses them already, and a client that does so too fails."""
    for call in exchange.calls:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])


@FAULTS.add("chat", check=VALID, says="tool_calls[0].arguments.weight: '0.5' is not of type")
@as_message
def writes_numbers_as_text(message: Message) -> None:
    """A parser that knows no schema takes all values for text."""
    for call in message.calls:
        if "weight" in call.values:
            call.values = {**call.values, "weight": str(call.values["weight"])}


@FAULTS.add("chat", check=VALID, says='tool_calls[0].arguments.tags: \'["food", ')
@as_message
def writes_lists_as_text(message: Message) -> None:
    """Nested values are not parsed."""
    for call in message.calls:
        if "tags" in call.values:
            tags = json.dumps(call.values["tags"], ensure_ascii=False)
            call.values = {**call.values, "tags": tags}


@FAULTS.add("chat", check=IDS, says="tool_calls[0].id is missing", also=("streaming",))
@as_message
def gives_calls_no_id(message: Message) -> None:
    """A tool's result cannot be sent back without one."""
    for call in message.calls:
        call.id = None


@FAULTS.add("chat", check=IDS, says="which is another call's")
@as_message
def gives_all_calls_one_id(message: Message) -> None:
    """The id is the request's, and not the call's."""
    for call in message.calls:
        call.id = "call-0"


@FAULTS.add("chat", check=IDS, says=" other answers")
@as_message
def numbers_the_calls_of_each_answer(message: Message) -> None:
    """In a conversation with two calls both have the id of the first."""
    for number, call in enumerate(message.calls):
        call.id = f"call-{number}"


@FAULTS.add("asked", check=CHOICE, says="a call was required, and none came")
def takes_required_for_auto(exchange: Exchange) -> None:
    """The value is unknown to a gateway."""
    if exchange.body.get("tool_choice") == "required":
        exchange.body["tool_choice"] = "auto"


@FAULTS.add("asked", check=CHOICE, says="expected one call of get_weather, got nothing")
def takes_a_named_tool_for_auto(exchange: Exchange) -> None:
    """The model chooses although the client has chosen."""
    if isinstance(exchange.body.get("tool_choice"), dict):
        exchange.body["tool_choice"] = "auto"


@FAULTS.add("chat", check=CHOICE, says="expected one call of get_weather, got get_time")
@as_message
def calls_another_tool_than_the_named(message: Message) -> None:
    """Any declared tool will do."""
    for call in message.calls if message.choice == "named" else ():
        call.name, call.arguments = "get_time", "{}"


@FAULTS.add(
    "chat", check=CHOICE, says="no tool may be called (none), and the answer calls get_weather"
)
@as_message
def calls_a_tool_although_none_was_allowed(message: Message) -> None:
    """tool_choice none is not looked at."""
    if message.choice == "none" and not message.stopped:
        message.calls = [Call("get_weather", '{"city": "Oslo"}', "call-0")]
        message.finish_reason = "tool_calls"


@FAULTS.add(
    "chat",
    check=CHOICE,
    says="no tool may be called (undeclared), and the answer calls get_weather",
)
@as_message
def calls_a_tool_where_there_are_none(message: Message) -> None:
    """A call of a tool that the model was taught and that is not declared."""
    if len(message.asked["messages"]) > 1 and not (message.choice or message.stopped):
        message.calls = [Call("get_weather", '{"city": "Oslo"}', "call-0")]
        message.finish_reason = "tool_calls"


@FAULTS.add("asked", check=STRICT, says="'Oslo' is not one of ['Ulaanbaatar']")
def knows_no_strict_tools(exchange: Exchange) -> None:
    """The field is unknown on the way, and the model fills in what it likes."""
    for tool in exchange.body.get("tools") or ():
        tool["function"].pop("strict", None)


@FAULTS.add("asked", check=NAMED, says="expected one call of get_time, got get_weather")
def names_the_first_tool(exchange: Exchange) -> None:
    """The first tool is called instead of the named one."""
    if isinstance(exchange.body.get("tool_choice"), dict):
        name = exchange.body["tools"][0]["function"]["name"]
        exchange.body["tool_choice"] = {"type": "function", "function": {"name": name}}


@FAULTS.add("asked", check=PARALLEL, says="parallel_tool_calls is false, and 3 calls came")
def does_not_know_one_call_at_a_time(exchange: Exchange) -> None:
    """A gateway passes only the fields it knows."""
    exchange.body.pop("parallel_tool_calls", None)


@FAULTS.add("chat", check=LOST, says="2 calls came, and the tokens contain 3")
@as_message
def drops_one_of_several_calls(message: Message) -> None:
    """Parallel calls: the second replaces the first (vllm#41967)."""
    if len(message.calls) > 1:
        del message.calls[0]


@FAULTS.add("chat", check=LOST, says="tool_calls[0] was written as number ")
@as_message
def turns_the_order_of_calls_round(message: Message) -> None:
    """Calls are put before those that came before them."""
    message.calls.reverse()


@FAULTS.add("chat", check=LOST, says="0 calls came, and the tokens contain 1")
@as_message
def drops_calls_without_arguments(message: Message) -> None:
    """Nothing is between the tags, so nothing is sent (vllm#44326)."""
    message.calls = [call for call in message.calls if call.arguments != "{}"]


@FAULTS.add("chat", check=LOST, says="the calls lack text of the tokens: ")
@as_message
def drops_an_argument(message: Message) -> None:
    """The last argument is only parsed when another one follows."""
    for call in message.calls:
        if "weight" in call.values:
            call.values = {name: call.values[name] for name in ("text", "weight")}


@FAULTS.add("chat", check=VALID, says="tool_calls[1].arguments: 'city' is a required property")
@as_message
def mixes_the_arguments_of_two_calls(message: Message) -> None:
    """Arguments of parallel calls go to the neighbour."""
    if len(message.calls) > 1:
        call, next_call = message.calls[-2:]
        call.arguments, next_call.arguments = next_call.arguments, call.arguments


@FAULTS.add("chat", check=VALID, says="tool_calls[0].arguments is not JSON (Extra data")
@as_message
def puts_all_arguments_into_the_first_call(message: Message) -> None:
    """The index of the call is not looked at."""
    if len(message.calls) > 1:
        message.calls[0].arguments = "".join(call.arguments for call in message.calls)


@FAULTS.add("chat", check=LOST, says="which the tokens do not", also=("reasoning",))
@as_message
def leaves_markup_in_the_arguments(message: Message) -> None:
    """The end of a call is taken for a part of its last argument (vllm#53227)."""
    for call in message.calls:
        if "city" in call.values:
            call.values = {**call.values, "city": call.values["city"] + "\n</parameter>"}


@FAULTS.add(
    "chat",
    check=VALID,
    says="tool_calls[0].name is 'get_weather</function>'; declared are",
    also=("reasoning",),
)
@as_message
def leaves_markup_in_the_name(message: Message) -> None:
    """A call without arguments ends where the name is still read."""
    for call in message.calls:
        call.name += "</function>"


@FAULTS.add("chat", check=AGREE, says="and the answer has no call", also=("reasoning",))
@as_message
def gives_calls_as_text(message: Message) -> None:
    """The tool parser gives up, and a user reads raw calls (vllm#36654, #39468)."""
    if message.choice == "auto" and message.calls:
        written = (f"<tool_call>\n<function={call.name}>" for call in message.calls)
        message.content += "\n".join(written)
        message.calls = []


@argument(says="""whole: text is 'say ', written was 'say "hi\"""")
def cuts_texts_at_a_quote(text: str) -> str:
    """An inner quote is taken for the end (vllm#39069)."""
    return text.partition('"')[0]


@argument(says=r"whole: text is 'C:\\\\new\\\\table")
def escapes_twice(text: str) -> str:
    """Each backslash becomes two."""
    return text.replace("\\", "\\\\")


@argument(says=r"whole: text is 'one two  four\ttab'")
def makes_one_line_of_it(text: str) -> str:
    """Line breaks are lost."""
    return text.replace("\n", " ")


@argument(says="&lt; b &amp;&amp; c &gt; d")
def escapes_as_html(text: str) -> str:
    """A filter removes markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@argument(says="whole: text is '?n?c?d?")
def writes_question_marks(text: str) -> str:
    """Text that is not ASCII is lost between two encodings."""
    return text.encode("ascii", "replace").decode()


@argument(says="whole: text is 7, written was '007'")
def reads_numbers_in_texts(text: str) -> str | int:
    """Text that looks like a number becomes one, although the schema requires text."""
    return int(text) if text.isdigit() else text


@argument(says='whole: text is ["1", 2, null, true], written was \'["1", 2, null, true]\'')
def reads_json_in_texts(text: str) -> Any:
    """Text that looks like JSON becomes JSON, although the schema requires text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@argument(says="whole: text is null, written was ''")
def takes_empty_for_nothing(text: str) -> str | None:
    """An empty text is none."""
    return text or None


@argument(says="(10010 characters)")
def cuts_long_texts(text: str) -> str:
    """A buffer of 4,096 characters."""
    return text[:4096]


@FAULTS.add("chat", check=TYPES, says="whole: identifier is 9007199254740992, written was")
@as_message
def reads_integers_as_floats(message: Message) -> None:
    """An identifier of 64 bits becomes its neighbour, on the way through a client in JavaScript."""
    for call in message.calls:
        if "identifier" in call.values:
            call.values = {**call.values, "identifier": int(float(call.values["identifier"]))}


@FAULTS.add("chat", check=TYPES, says="whole: days is '7', written was 7")
@as_message
def knows_no_optional_types(message: Message) -> None:
    """A parser that looks for `type` treats values declared by `anyOf` as text."""
    for call in message.calls:
        if "days" in call.values:
            call.values = {**call.values, "days": str(call.values["days"])}


@FAULTS.add("chat", check=SAMPLED, says="0 of 20 sampled answers were valid calls, 20 of 20 when")
@as_message
def calls_no_tool_when_sampled(message: Message) -> None:
    """Greedy answers are as ever, and sampled ones hardly ever call (vllm#36654)."""
    if message.asked.get("temperature", 0) > HOT:
        message.calls, message.content = [], "I would look that up."
        message.finish_reason = "stop"
