"""Servers that break what clients rely on, and servers that only add something."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from faults.exchange import CHAT
from faults.fault import Faults
from faults.robustness import answer

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("contracts")
CHANGES = Faults(None)

ROUTES = "routes_are_served"
METRICS = "metrics_keep_their_names"
MODEL = "answers_name_the_requested_model"
FIELDS = "answers_keep_their_fields"
ERRORS = "errors_keep_their_shape"
COUNTS = "metrics_count_what_was_sent"
PROTOCOL = "protocol_is_the_recorded"


def rewrite(exchange: Exchange, old: str, new: str) -> None:
    """Put another text into the metrics."""
    if exchange.path == "/metrics" and exchange.text:
        exchange.text = exchange.text.replace(old, new)


def errors(exchange: Exchange, status: HTTPStatus) -> list[dict[str, Any]]:
    """Return the errors of OpenAI's API, if the answer has that status."""
    if exchange.status != status or exchange.path != CHAT:
        return []
    return [event["error"] for event in exchange.events if isinstance(event.get("error"), dict)]


def paths(exchange: Exchange) -> dict[str, Any]:
    """Return the listed routes of an answer to `/openapi.json`."""
    document: dict[str, Any] = {}
    if exchange.path == "/openapi.json":
        document = exchange.events[0]["paths"]
    return document


@FAULTS.add(
    "anything",
    check=ROUTES,
    says="POST /v1/responses is gone: requests to it",
    besides=(PROTOCOL,),
)
def has_a_route_no_more(exchange: Exchange) -> None:
    """It is listed all the same."""
    if exchange.path == "/v1/responses":
        answer(exchange, HTTPStatus.NOT_FOUND, '{"detail":"Not Found"}', "application/json")


@FAULTS.add("anything", check=ROUTES, says="GET /load is gone: requests to it")
def lists_a_route_no_more(exchange: Exchange) -> None:
    """A route that is rarely requested, or that is harmful to request."""
    paths(exchange).pop("/load", None)


@FAULTS.add("chat", check=MODEL, says=" was requested, and the answer is of 'gpt-5'")
def answers_as_another_model(exchange: Exchange) -> None:
    """A gateway gives the name that it knows the model by."""
    for event in exchange.events:
        event["model"] = "gpt-5"


@FAULTS.add(
    "anything",
    check=METRICS,
    says="the metric vllm:kv_cache_usage_perc is gone: dashboards that use it show nothing; "
    "perhaps it is vllm:gpu_cache_usage_perc now",
)
def renames_a_metric(exchange: Exchange) -> None:
    """As releases have done, and back again."""
    rewrite(exchange, "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")


@FAULTS.add(
    "anything", check=METRICS, says="vllm:request_success_total has no label finished_reason"
)
def renames_a_label(exchange: Exchange) -> None:
    """The series are there, and no query finds them."""
    rewrite(exchange, 'finished_reason="', 'reason="')


@FAULTS.add("anything", check=METRICS, says="the metric vllm:num_requests_running is gone")
def counts_what_was_measured(exchange: Exchange) -> None:
    """The name is the same, and the type another one."""
    name = "# TYPE vllm:num_requests_running"
    rewrite(exchange, f"{name} gauge", f"{name} counter")


@FAULTS.add("anything", check=METRICS, says="the server exposes no metrics at all")
def answers_for_metrics_with_a_page(exchange: Exchange) -> None:
    """A gateway serves something else at this path."""
    if exchange.path == "/metrics":
        answer(exchange, HTTPStatus.OK, "<html>Welcome</html>")


@FAULTS.add(
    "whole",
    check=FIELDS,
    says="chat: created is gone: clients that read it find nothing",
    also=("streaming",),
)
def drops_a_field(exchange: Exchange) -> None:
    """Our clients do not read it, but other clients do."""
    for event in exchange.events:
        event.pop("created", None)


@FAULTS.add("anything", check=FIELDS, says="tokenize: count is gone: clients that read it find")
def renames_a_field(exchange: Exchange) -> None:
    """The field of an answer that is not a chat's."""
    if exchange.path == "/tokenize":
        for event in exchange.events:
            if "count" in event:
                event["num_tokens"] = event.pop("count")


@FAULTS.add(
    "whole",
    check=FIELDS,
    says="chat: id is integer and was string",
    also=("streaming",),
    besides=(PROTOCOL,),
)
def numbers_its_answers(exchange: Exchange) -> None:
    """The field is there, and of another type."""
    for number, event in enumerate(exchange.events):
        event["id"] = number


@FAULTS.add(
    "anything",
    check=FIELDS,
    says="completion: usage is null and was object",
    besides=(COUNTS,),
)
def counts_nothing_in_completions(exchange: Exchange) -> None:
    """The field of the older interface, which is easily forgotten."""
    if exchange.path == "/v1/completions" and not exchange.streamed:
        for event in exchange.events:
            event["usage"] = None


@FAULTS.add(
    "whole",
    check=FIELDS,
    says="chat: usage is null and was object",
    also=("streaming", "tools"),
    besides=(COUNTS,),
)
def counts_nothing(exchange: Exchange) -> None:
    """A bill by this field is zero."""
    for event in exchange.events:
        event["usage"] = None


@FAULTS.add(
    "stream",
    check=FIELDS,
    says="no streamed chat, usage chunk came",
    also=("stop", "streaming", "tools"),
)
def counts_nothing_in_streams(exchange: Exchange) -> None:
    """Although it was requested."""
    exchange.events = [event for event in exchange.events if not event.get("usage")]


@FAULTS.add("anything", check=COUNTS, says="usage.prompt_tokens is ", also=("robustness",))
def counts_another_tokenizers_tokens(exchange: Exchange) -> None:
    """A gateway bills by its own tokenizer."""
    if exchange.path == "/v1/completions" and isinstance(exchange.body.get("prompt"), list):
        for event in exchange.events:
            event["usage"]["prompt_tokens"] += 1


@FAULTS.add(
    "anything", check=ERRORS, says="wrong key: content type is text/plain and was application/json"
)
def refuses_keys_in_plain_text(exchange: Exchange) -> None:
    """The gateway that checks the keys of chats has its own error messages."""
    if exchange.status == HTTPStatus.UNAUTHORIZED and exchange.path == CHAT:
        answer(exchange, HTTPStatus.UNAUTHORIZED, "Unauthorized", "text/plain")


@FAULTS.add("anything", check=ERRORS, says="unknown model: HTTP status is 400 and was 404")
def answers_with_another_status(exchange: Exchange) -> None:
    """A router that goes to the next server on 404 stays with this one."""
    for error in errors(exchange, HTTPStatus.NOT_FOUND):
        exchange.status = error["code"] = HTTPStatus.BAD_REQUEST


@FAULTS.add(
    "anything",
    check=ERRORS,
    says='unknown model: error.type is "not_found_error" and was "NotFoundError"',
)
def names_an_error_otherwise(exchange: Exchange) -> None:
    """As other servers call it."""
    for error in errors(exchange, HTTPStatus.NOT_FOUND):
        error["type"] = "not_found_error"


@CHANGES.add("anything")
def has_more_routes(exchange: Exchange) -> None:
    """The next release adds some, and methods to others."""
    if routes := paths(exchange):
        routes["/v2/chat"] = {"post": {}}
        routes["/v1/models"]["head"] = routes["/v1/models"]["delete"] = {}


@CHANGES.add("anything")
def lists_no_routes(exchange: Exchange) -> None:
    """As it is advised for production."""
    if exchange.path == "/openapi.json":
        answer(exchange, HTTPStatus.NOT_FOUND, '{"detail":"Not Found"}', "application/json")


@CHANGES.add("anything")
def has_more_metrics(exchange: Exchange) -> None:
    """And more labels on those that there were."""
    rewrite(exchange, 'model_name="', 'instance="a",model_name="')
    if exchange.path == "/metrics" and exchange.text:
        exchange.text += "# TYPE vllm:novelty gauge\nvllm:novelty 1.0\n"


@CHANGES.add("anything")
def says_more_in_errors(exchange: Exchange) -> None:
    """Other words for the same, and a link to the manual."""
    for status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND):
        for error in errors(exchange, status):
            error |= {"message": "That will not do.", "documentation": "https://example.org"}


@CHANGES.add("anything")
def says_more_of_itself(exchange: Exchange) -> None:
    """New fields in answers that are not chats."""
    if exchange.method == "GET" or exchange.path == "/tokenize":
        for event in exchange.events:
            event["novelty"] = [1, None]
