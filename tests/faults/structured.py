"""Servers that do not keep to the requested format: the structured gate fails.

A gateway that rewrites an answer loses its token ids; faults that only misplace text keep them.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from typing import TYPE_CHECKING

from faults.fault import Faults
from faults.messages import Message, as_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.exchange import Exchange
    from faults.fault import Change

FAULTS = Faults("structured")
VALUE = "json_is_one_value_that_validates"
UNLIKELY = "unlikely_formats_are_kept"
BLANKS = "no_formatted_answer_runs_into_blanks"
PATTERN = "text_matches_its_pattern"
CHOSEN = "chosen_texts_arrive_as_they_are"


def fault(kind: str, says: str) -> Callable[[Callable[[str], str]], Change]:
    """Make a fault of a function that rewrites the answers in a format of this kind."""

    def declare(rewrite: Callable[[str], str]) -> Change:
        def change(message: Message) -> None:
            # The words of an enum have no fields to change.
            fits = kind != "json" or message.content.lstrip().startswith("{")
            if message.format == kind and message.content and fits and not message.stopped:
                message.content = rewrite(message.content)
                message.token_ids = []

        change.__name__, change.__doc__ = rewrite.__name__, rewrite.__doc__
        check = VALUE if kind == "json" else PATTERN
        return FAULTS.add("chat", says=says, check=check)(as_message(change))

    return declare


@FAULTS.add(
    "chat",
    check=VALUE,
    says="(Expecting value: line 1 column 1 (char 0)): ''; reasoning contains it",
    also=("reasoning",),
)
@as_message
def puts_json_into_its_reasoning(message: Message) -> None:
    """With thinking, the grammar begins at once and all of it is reasoning (vllm#41132, #16182)."""
    if message.format == "json" and message.thinking is not False:
        message.reasoning, message.content = message.reasoning + message.content, ""


@FAULTS.add("asked", check=VALUE, says="content is not one JSON value (Expecting value: line ")
def forgets_the_format(exchange: Exchange) -> None:
    """The field is unknown on the way, and the model would rather write verse."""
    if exchange.body.pop("response_format", None):
        exchange.body["messages"] = [{"role": "user", "content": "Write two lines about the sea."}]


@FAULTS.add(
    "asked", check=VALUE, says="content is not one JSON value (Expecting value: line 3 column 1"
)
def forgets_the_format_when_it_thinks(exchange: Exchange) -> None:
    """The grammar waits for an end of the thinking that it never sees (vllm#50938)."""
    if (exchange.body.get("chat_template_kwargs") or {}).get("enable_thinking"):
        forgets_the_format(exchange)


@FAULTS.add("asked", check=UNLIKELY, says="content is not one JSON value (Expecting value: line ")
def knows_no_enums(exchange: Exchange) -> None:
    """A gateway passes schemas of objects, and drops the others."""
    schema = (exchange.body.get("response_format") or {}).get("json_schema", {}).get("schema", {})
    if "enum" in schema:
        exchange.body.pop("response_format")


@FAULTS.add("asked", check=UNLIKELY, says="content is not one JSON value (Expecting value: line ")
def forgets_the_format_beside_tools(exchange: Exchange) -> None:
    """The grammar of the tools replaces the format's."""
    if exchange.body.get("tools"):
        exchange.body.pop("response_format", None)


@FAULTS.add("chat", check=BLANKS, says="the answer ends in 200 characters of white space, at the")
@as_message
def runs_into_blanks(message: Message) -> None:
    """The grammar allows white space at its end, and the model writes it until the limit."""
    if message.format == "json" and message.content.startswith("{") and not message.first_chat:
        message.content += "\n" * 200
        message.finish_reason = "length"


@FAULTS.add("asked", check=PATTERN, says=r"content does not match '\\s{0,2}[A-Z]")
def forgets_the_pattern(exchange: Exchange) -> None:
    """A gateway knows response_format and not structured_outputs."""
    pattern = "regex" in exchange.body.get("structured_outputs", ())
    if pattern and not exchange.body.get("tools"):
        exchange.body.pop("structured_outputs")
        exchange.body["messages"] = [{"role": "user", "content": "Write two lines about the sea."}]


@fault("json", says="content is not one JSON value (Expecting value: line 1 column 1")
def fences_json_in(content: str) -> str:
    """As in a chat."""
    return f"```json\n{content}\n```"


@fault("json", says="content is not one JSON value (Expecting value: line 1 column 1")
def says_something_before(content: str) -> str:
    """A friendly word first."""
    return f"Here you are: {content}"


@fault("json", says="content is not one JSON value (Extra data: line")
def says_something_after(content: str) -> str:
    """A friendly word last."""
    return f"{content}\nIs there anything else?"


@fault("json", says="content is not one JSON value (Extra data: line 2 column 1")
def answers_twice(content: str) -> str:
    """The grammar begins anew after its end."""
    return f"{content}\n{content}"


@fault("json", says="content is not one JSON value (Expecting ',' delimiter")
def cuts_json_short(content: str) -> str:
    """The last token is lost."""
    return content[:-1]


@fault("json", says="content is not one JSON value (the key 'born' is given twice)")
def gives_a_key_twice(content: str) -> str:
    """Python's parser takes the last one, a strict client neither."""
    return content.replace("{", '{"born": 1, ', 1)


@fault("json", says="content is not one JSON value (NaN is not a finite number)")
def writes_nan(content: str) -> str:
    """Python writes and reads it; it is not JSON."""
    return re.sub(r"\d+", "NaN", content, count=1)


@fault("json", says=" is not of type 'object'")
def quotes_json_once_more(content: str) -> str:
    """JSON in a JSON string."""
    return json.dumps(content)


@fault("json", says="content.born: '1815' is not of type 'integer'")
def writes_numbers_as_text(content: str) -> str:
    """The schema's types are not kept."""
    return json.dumps({**json.loads(content), "born": "1815"})


@fault("json", says="content: 'fields' is a required property")
def leaves_a_field_out(content: str) -> str:
    """Only the JSON is enforced, and not its schema."""
    return json.dumps({"name": json.loads(content)["name"], "born": 1815})


@fault("json", says="'died' was unexpected")
def adds_a_field(content: str) -> str:
    """additionalProperties is not looked at."""
    return json.dumps({**json.loads(content), "died": 1852})


@fault("regex", says="content does not match")
def goes_on_after_the_pattern(content: str) -> str:
    """The end of the pattern does not end the answer."""
    return f"{content} And so on"


@fault("regex", says="content does not match")
def ends_before_the_pattern(content: str) -> str:
    """The end of the answer is not the end of the pattern."""
    return content.rstrip(".")


def chosen(says: str) -> Callable[[Callable[[str], str]], Change]:
    """Make a fault of a function that rewrites the answers that have one text to choose."""

    def declare(rewrite: Callable[[str], str]) -> Change:
        def change(message: Message) -> None:
            if "choice" in (message.asked.get("structured_outputs") or {}):
                message.content = rewrite(message.content)
                message.token_ids = []

        change.__name__, change.__doc__ = rewrite.__name__, rewrite.__doc__
        return FAULTS.add("chat", says=says, check=CHOSEN)(as_message(change))

    return declare


@chosen("content is '&lt;b&gt;a &amp; b")
def escapes_as_html(text: str) -> str:
    """A gateway shows answers on a page."""
    return html.escape(text, quote=False)


@chosen("content is 'new")
def loses_backslashes(text: str) -> str:
    """A shell or a template reads the answer once more."""
    return text.replace("\\", "")


@chosen("content is 'c\\n  d   e'")
def joins_paragraphs(text: str) -> str:
    """Empty lines are left out."""
    return text.replace("\n\n", "\n")


@chosen("content is ' ")
def knows_no_tabs(text: str) -> str:
    """Tabs become blanks."""
    return text.replace("\t", "    ")


@chosen("content is 'python")
def takes_fences_away(text: str) -> str:
    """Markdown is for people."""
    return text.replace("```", "")


@chosen("joined characters, whole:")
def normalises(text: str) -> str:
    """Unicode is made uniform."""
    return unicodedata.normalize("NFKC", text)


@chosen("content is '\u2019")
def makes_quotes_pretty(text: str) -> str:
    """Straight quotes are typographers' horror."""
    return text.replace("'", "\u2019")


@chosen("content is '[] ")
def fills_placeholders_in(text: str) -> str:
    """A template engine runs over the answer."""
    return text.replace("{}", "[]")
