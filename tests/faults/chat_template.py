"""Servers that render other prompts than the recorded ones: the chat_template gate fails.

Here the server renders something else; `prompt_edits` changes the checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.fault import Faults

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("chat_template")
TOKENIZE = "/tokenize"
RENDER = "/v1/chat/completions/render"
CHATS = ("/v1/chat/completions", RENDER)
COMPLETIONS = "/v1/completions"
THINKING_ENDS = 1521  # the id of </think>


@FAULTS.add("request", says="tokens expected")
def drops_the_thinking_switch(exchange: Exchange) -> None:
    """A gateway lets only the fields pass that it knows."""
    if exchange.path in (TOKENIZE, RENDER):
        exchange.body.pop("chat_template_kwargs", None)


@FAULTS.add("request", says="tokens expected")
def puts_a_system_prompt_before(exchange: Exchange) -> None:
    """A well-meant addition."""
    messages = exchange.body.get("messages")
    if exchange.path == TOKENIZE and messages and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": "Be nice."})


@FAULTS.add("request", says="tokens expected")
def loses_the_tools(exchange: Exchange) -> None:
    """The tools never reach the template."""
    if exchange.path == TOKENIZE:
        exchange.body.pop("tools", None)


@FAULTS.add(
    "anything", says="the server's prompt differs from the prompt of the checkpoint's template"
)
def serves_another_tokenizer(exchange: Exchange) -> None:
    """One token of a prompt has another id."""
    if exchange.path == TOKENIZE and "messages" in exchange.body:
        exchange.events[0]["tokens"][-2] += 1


@FAULTS.add("request", says="through the chat API: the server's prompt differs")
def loses_the_tools_of_chats(exchange: Exchange) -> None:
    """`/tokenize` returns the right prompt, and chats get another."""
    if exchange.path == RENDER:
        exchange.body.pop("tools", None)


@FAULTS.add("request", says="\nin {'messages': [")
def replaces_what_looks_like_a_template(exchange: Exchange) -> None:
    """A filter removes template text from users' messages."""
    for message in exchange.body.get("messages", ()) if exchange.path == TOKENIZE else ():
        if message["content"]:
            message["content"] = message["content"].replace("[INST]", "")


@FAULTS.add("anything", says="the prompt's ids detokenise to")
def loses_a_space_when_it_detokenises(exchange: Exchange) -> None:
    """A tokenizer that cleans up what it decodes."""
    if exchange.path == "/detokenize":
        exchange.events[0]["prompt"] = exchange.events[0]["prompt"].replace(" ", "", 1)


@FAULTS.add("request", says="the server goes on after '<|im_end|>': answers run on past their end")
def goes_on_after_a_stop_token(exchange: Exchange) -> None:
    """The flag of a benchmark that stayed."""
    if exchange.path == COMPLETIONS and "logit_bias" in exchange.body:
        exchange.body["ignore_eos"] = True


@FAULTS.add("request", says="the server stops at '</think>', which ends no answer of this family")
def stops_where_the_thinking_ends(exchange: Exchange) -> None:
    """One user's own stop token is set for all requests."""
    if exchange.path == COMPLETIONS and "logit_bias" in exchange.body:
        exchange.body["stop_token_ids"] = [THINKING_ENDS]


@FAULTS.add("asked", says="through a chat: the server's prompt differs")
def takes_the_first_part_for_all(exchange: Exchange) -> None:
    """A gateway that looks at chats alone hands on one part of content that has several."""
    for message in exchange.body["messages"]:
        if isinstance(message.get("content"), list):
            message["content"] = message["content"][:1]


@FAULTS.add("request", says="through the chat API: the server's prompt differs")
def forgets_the_old_name_of_reasoning(exchange: Exchange) -> None:
    """A release reads `reasoning` alone, and agents lose what they thought (vllm#33402)."""
    for message in exchange.body.get("messages", ()) if exchange.path in CHATS else ():
        message.pop("reasoning_content", None)
