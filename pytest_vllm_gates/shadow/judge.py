"""Judges a pair: which kinds of invariants each side's answer breaks, with the gates' checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.client.sameness import why_degenerate
from pytest_vllm_gates.client.untyped import MISREADINGS, number, record, records, string
from pytest_vllm_gates.conversations.checks import content, finish, reasoning, stops, tool_calls
from pytest_vllm_gates.shadow import reading
from pytest_vllm_gates.shadow.tally import PairJudgement, SideJudgement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.shadow.settings import ShadowSettings

OK, BAD_REQUEST, TOO_MANY, SERVER_ERROR = 200, 400, 429, 500
REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")
FORCED = "required"
BEYOND = 64
"""Characters that are kept after two texts first differ, to find the token that differs."""
LONGEST = 2**16
"""Texts that first differ later than this are not kept."""
SENTENCE = 300
"""Characters of a sentence that are kept."""

Broken = dict[str, str]


class PairJudge:
    """Judges pairs, all by the same settings."""

    def __init__(self, settings: ShadowSettings, markers: Callable[[str], Sequence[str]]) -> None:
        """`markers` maps a model's name to the markers that its answers must not contain."""
        self._settings = settings
        self._markers = markers

    def judge(self, stable: Sent, canary: Sent) -> PairJudgement:
        """Judge one pair."""
        try:
            request = syntax.json_value(stable.body)
        except syntax.BadSyntaxError:
            request = None
        if not isinstance(request, dict):
            return PairJudgement(left_out="the request is not a JSON object")
        if stable.cut_bytes:
            return PairJudgement(left_out="the stable server's answer is too large to be kept")
        if BAD_REQUEST <= (stable.status or 0) < SERVER_ERROR:
            return PairJudgement(left_out=f"the stable server answers {stable.status}")
        first, first_read = self._side(stable, request, None)
        second, second_read = self._side(canary, request, first)
        same, parts_at, parted = _compared(request, first_read, second_read)
        return PairJudgement(first, second, same=same, parts_at=parts_at, parted=parted)

    def _side(
        self, sent: Sent, request: Mapping[str, Any], stable: SideJudgement | None
    ) -> tuple[SideJudgement, Answer | None]:
        if sent.error or sent.status is None or sent.status == TOO_MANY or (
            sent.status >= SERVER_ERROR
        ):  # fmt: skip
            why = sent.error or f"status {sent.status}: {_text(sent)}"
            return SideJudgement({"unanswered": why[:SENTENCE]}), None
        if sent.status != OK:
            # A request that the stable server could not answer may be refused.
            refused = stable is None or "unanswered" not in stable.broken
            why = f"status {sent.status}: {_text(sent)}"[:SENTENCE]
            return SideJudgement({"refused": why} if refused else {}), None
        found = reading.read(sent, request)
        broken: Broken = {}
        _put(broken, "framing", found.framing)
        _put(broken, "nonsense", found.characters)
        if found.answer is not None:
            for kind, sentences in self._answer_faults(found.answer, request):
                try:
                    _put(broken, kind, list(sentences))
                except MISREADINGS:
                    continue  # a request whose tools or formats are not as in the API
        return SideJudgement(broken, found.figures), found.answer

    def _answer_faults(
        self, answer: Answer, request: Mapping[str, Any]
    ) -> Iterator[tuple[str, Iterator[str]]]:
        choice = request.get("tool_choice")
        yield "finish_reason", _reason(answer, named=isinstance(choice, dict))
        markers = self._markers(string(request.get("model")))
        yield "markers", reasoning.held_markers(answer, request, markers)
        yield "usage", _usage(answer, request)
        if not request.get("include_stop_str_in_output") and not request.get("min_tokens"):
            yield "stop", _stops(answer, request)
        if choice == FORCED or isinstance(choice, dict):
            yield "forced_call", _forced(answer, request)
        else:
            yield "call", tool_calls.valid(answer, {"tools": _functions(request)})
        wanted, schema = _format(request)
        ended = answer.finish_reason == "stop" and not answer.tool_calls and not _stop(request)
        if wanted and ended:
            yield "json", content.no_json(answer)
            if schema is not None:
                yield "schema", _schema(answer, schema)
        yield "empty", _empty(answer)
        yield "nonsense", _nonsense(answer)
        yield "refusal", self._refusal(answer)

    def _refusal(self, answer: Answer) -> Iterator[str]:
        text = answer.content.strip().lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        if text.startswith(self._settings.refusals):
            yield f"the answer begins as a refusal: {answer.content.strip()[:80]!r}"


def _put(broken: Broken, kind: str, sentences: Sequence[str]) -> None:
    if sentences:
        broken.setdefault(kind, sentences[0][:SENTENCE])


def _text(sent: Sent) -> str:
    return sent.answer[:SENTENCE].decode("utf-8", "replace")


def _reason(answer: Answer, *, named: bool) -> Iterator[str]:
    if answer.finish_reason not in REASONS:
        yield f"finish_reason is {answer.finish_reason!r}"
    yield from tool_calls.contradiction(answer, named=named)


def _usage(answer: Answer, request: Mapping[str, Any]) -> Iterator[str]:
    limits = [
        number(request.get(name))
        for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")
    ]
    allowed = min(filter(None, limits), default=0)
    if answer.usage is None:
        if not request.get("stream"):
            yield "the answer counts no tokens: usage is missing"
        return
    if (number(request.get("n")) or 1) > 1:
        return  # the token count covers all choices
    used = answer.usage.completion_tokens
    if allowed and used > allowed:
        # `limit` would also fault an end at the model's context, which real requests reach.
        yield from finish.limit(answer, allowed, least=1)
    if answer.token_ids and used != len(answer.token_ids):
        yield f"usage counts {used} tokens, and {len(answer.token_ids)} token ids came"


def _stop(request: Mapping[str, Any]) -> list[str]:
    given = request.get("stop") or request.get("stop_sequences") or []
    texts = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return [text for text in texts if isinstance(text, str) and text]


def _stops(answer: Answer, request: Mapping[str, Any]) -> Iterator[str]:
    if answer.tool_calls or answer.reasoning:
        return  # parsers rewrite such texts
    for stop in _stop(request):
        yield from stops.held_stop(answer, stop)


def _functions(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tools as Chat Completions declares them; Responses and Messages are flat."""
    tools: list[Mapping[str, Any]] = []
    for tool in records(request.get("tools")):
        function = record(tool.get("function")) or tool
        schema = function.get("parameters") or function.get("input_schema") or {}
        tools.append({"function": {"name": function.get("name"), "parameters": schema}})
    return tools


def _forced(answer: Answer, request: Mapping[str, Any]) -> Iterator[str]:
    if answer.finish_reason == "length" or _stop(request):
        return
    if not answer.tool_calls:
        yield f"tool_choice forces a call, and none came; content is {answer.content[:80]!r}"
    for sentence in tool_calls.valid(answer, {"tools": _functions(request)}):
        if "is not JSON" in sentence or "declared are" in sentence:
            yield sentence


def _format(request: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether the request requires JSON, and by which schema."""
    wanted = record(request.get("response_format")) or record(
        record(request.get("text")).get("format")
    )
    kind = wanted.get("type")
    if kind == "json_schema":
        return True, (record(wanted.get("json_schema")) or wanted).get("schema")
    structured = record(request.get("structured_outputs"))
    if kind == "json_object" or structured.get("json_object"):
        return True, None
    schema = structured.get("json") or request.get("guided_json")
    return isinstance(schema, dict), schema


def _schema(answer: Answer, schema: Any) -> Iterator[str]:
    if isinstance(schema, dict) and not list(content.no_json(answer)):
        yield from content.against_schema(answer, schema)


def _empty(answer: Answer) -> Iterator[str]:
    if answer.finish_reason == "stop" and answer.stop_reason is None and not (
        answer.has_text or answer.tool_calls
    ):  # fmt: skip
        where = " (everything is in reasoning)" if answer.reasoning else ""
        yield f"finish_reason is 'stop', and there is neither content nor a call{where}"


def _nonsense(answer: Answer) -> Iterator[str]:
    text = answer.content or answer.reasoning
    if text.strip() and not answer.tool_calls and (why := why_degenerate(text)):
        yield why


def _compared(
    request: Mapping[str, Any], stable: Answer | None, canary: Answer | None
) -> tuple[bool | None, int | None, tuple[str, str, str] | None]:
    """Return whether greedy answers are equal, the first differing character, and `parted`."""
    if request.get("temperature") != 0 or stable is None or canary is None:
        return None, None, None
    first, second = (f"{each.reasoning}\n{each.content}" for each in (stable, canary))
    if first == second:
        return True, None, None
    pairs = enumerate(zip(first, second, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), None)
    parts_at = min(len(first), len(second)) if at is None else at
    if parts_at > LONGEST:
        return False, parts_at, None
    end = parts_at + BEYOND
    return False, parts_at, (string(request.get("model")), first[:end], second[:end])
