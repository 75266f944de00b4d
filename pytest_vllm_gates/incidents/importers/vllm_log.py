"""Imports requests from vLLM's log (`--enable-log-requests`), of old and new releases.

At log level DEBUG new releases log the body as JSON: that is the request. Old releases log the
rendered prompt and the sampling parameters; a completion with them is an equal request. Python
values in a line are parsed as literals, never evaluated.
"""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.importers import COMPLETIONS, path_of, request

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent

DEPTH = 100
CHARACTERS = 16 * 2**20
BRACKETS = {"{": "}", "[": "]", "(": ")"}
ENDS = (*BRACKETS.values(), ",", "\n", "")

# A text, a bracket, the end of an item or of the line; a quote alone begins a text that is cut off.
PART = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|['"{}()\[\],\n]|\Z""")


def value_at(text: str, at: int) -> tuple[Any, int]:
    """Return the literal that begins at a place of a text, and its end.

    Raises `ValueError` if there is none, if it is cut off, and if it is nested too deeply.
    """
    end = _end(text, at)
    try:
        return ast.literal_eval(text[at:end].strip()), end
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError(f"not a Python literal: {type(error).__name__}") from error


def arguments_at(text: str, at: int) -> dict[str, Any]:
    """Return the keywords of a call like `SamplingParams(n=1, stop=[])` that are literals."""
    end = _end(text, text.index("(", at))
    try:
        call = ast.parse(text[at:end].strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"not a call: {type(error).__name__}") from error
    arguments: dict[str, Any] = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        try:
            arguments[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError):
            continue
    return arguments


def _end(text: str, at: int) -> int:
    """Return the end of the value that begins at a place: its last bracket or quote is closed."""
    open_: list[str] = []
    begun = at
    for match in PART.finditer(text, at):
        part, at = match[0], match.end()
        if part in ("'", '"') or at - begun > CHARACTERS or len(open_) > DEPTH:
            break
        if part in BRACKETS:
            open_.append(BRACKETS[part])
            continue
        if part in ENDS and not open_:
            return match.start()
        if open_ and part == open_[-1]:
            open_.pop()
        if not open_:
            return at
    raise ValueError("it is cut off, too long or too deep")


RECEIVED = re.compile(r"Received request (\S+?): (?:prompt: (?P<prompt>))?")
DETAILS = re.compile(r"Request (\S+) details: prompt: ")
BODY = re.compile(r"Request (\S+) JSON body: (?=\{)")
PARAMS = "params: SamplingParams("
IDS = "prompt_token_ids: "

# The fields of SamplingParams that a completion request may set by the same name.
ASKED = {
    "n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p",
    "top_k", "min_p", "seed", "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos",
    "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "skip_special_tokens",
    "spaces_between_special_tokens", "bad_words", "truncate_prompt_tokens",
}  # fmt: skip
JSON = {"content-type": "application/json"}


def claims(text: str) -> bool:
    """Return whether a text is such a log."""
    return any(pattern.search(text) for pattern in (RECEIVED, DETAILS, BODY))


def requests(text: str, folder: Path) -> list[Sent]:
    """Return every request whose prompt or body is in the log."""
    del folder
    requests_sent: list[Sent] = []
    prompts: dict[str, Any] = {}
    logged_bodies = {match[1] for match in BODY.finditer(text)}
    silent = 0
    for line in text.splitlines():
        if match := BODY.search(line):
            requests_sent.append(_of_body(line[match.end() :]))
        elif (match := DETAILS.search(line)) and match[1] not in logged_bodies:
            prompts[match[1]] = _prompt(line, match.end())
        elif (match := RECEIVED.search(line)) and not _has_body(match[1], logged_bodies):
            prompt = _prompt(line, match.end()) if match["prompt"] is not None else None
            prompt = prompt if prompt is not None else prompts.pop(match[1], None)
            if prompt is None:
                silent += 1
                continue
            requests_sent.append(_of_prompt(prompt, line))
    if silent and not requests_sent:
        raise UserError(
            f"this log has {silent} requests without their contents: vLLM logs contents only at "
            "log level DEBUG (VLLM_LOGGING_LEVEL=DEBUG with --enable-log-requests)"
        )
    return requests_sent


def _has_body(name: str, logged_bodies: set[str]) -> bool:
    """Return whether a request's body is in the log: its id has the endpoint's prefix, or none."""
    return any(body_id in name for body_id in logged_bodies)


def _of_body(text: str) -> Sent:
    try:
        body, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"a body in this log is cut off ({error}): log whole bodies, without --max-log-len"
        ) from error
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return request(path_of(body), data, headers=JSON)


def _prompt(line: str, at: int) -> Any:
    """Return the prompt's token ids if the log has them, else its text, or None."""
    try:
        text, end = value_at(line, at)
        ids_at = line.find(IDS, end)
        ids, _ = value_at(line, ids_at + len(IDS)) if ids_at >= 0 else (None, 0)
    except ValueError as error:
        raise UserError(f"a prompt in this log cannot be read: {error}") from error
    return ids or text


def _of_prompt(prompt: Any, line: str) -> Sent:
    at = line.find(PARAMS)
    try:
        params = arguments_at(line, at + len("params: ")) if at >= 0 else {}
    except ValueError as error:
        raise UserError(f"the parameters in this log cannot be read: {error}") from error
    body: dict[str, Any] = {"model": "", "prompt": prompt}
    body |= {
        key: value for key, value in params.items() if key in ASKED and value not in (None, [], "")
    }
    if isinstance(prompt, str):
        body["add_special_tokens"] = False  # the rendered prompt has them
    return request(COMPLETIONS, json.dumps(body, ensure_ascii=False).encode(), headers=JSON)
