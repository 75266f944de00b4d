"""Controllers get the document, metrics and changes; failing pairs are kept under the redaction."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families
from servers import running, scripted

from pytest_vllm_gates.incidents import read as incidents_read
from pytest_vllm_gates.shadow.document import SCHEMA
from shadow.shadow_servers import Chats, chat, shadow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shadow.shadow_servers import ShadowProcess

SCHEMA_DOCUMENT = json.loads(SCHEMA.read_text(encoding="utf-8"))
CHECK = jsonschema.Draft202012Validator(
    SCHEMA_DOCUMENT, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
)


class Hook(scripted.ScriptedServer):
    """Refuses the first request, and keeps what every request brings."""

    def __init__(self) -> None:
        super().__init__(lambda *_: (503 if len(self.requests_seen) == 1 else 200, {}))


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ShadowProcess, Hook, Path]]:
    """Give a shadow whose canary leaks a marker in every third answer, after twelve requests."""
    folder = tmp_path_factory.mktemp("watched")
    with (
        running(Chats()) as stable,
        running(Chats("leaks", break_every=3)) as canary,
        running(Hook()) as hook,
    ):
        url = f"http://127.0.0.1:{hook.server_port}/hook"
        with shadow(stable.url, canary.url, folder, "--webhook", url) as process:
            for number in range(12):
                chat(process.port, stream=number % 2 == 1)
            process.until_pairs(12)
            yield process, hook, folder


Watched = tuple["ShadowProcess", Hook, "Path"]


def test_the_document_is_by_its_schema_and_rejects(watched: Watched) -> None:
    document = watched[0].document()
    CHECK.validate(document)
    assert document["promotion"] == "REJECT"
    assert document["exit_status"] == 1
    assert not document["watching"]
    kinds = {kind["name"]: kind for kind in document["kinds"]}
    assert kinds["markers"]["canary_only"] == 4
    assert kinds["markers"]["rejected"]
    assert kinds["framing"]["canary_only"] == 0
    assert document["traffic"]["mirrored"] == 12
    assert document["greedy"] == {
        "pairs": 12, "same": 8, "part_at_median": 11, "part_at_token_median": 2,
        "part_at_token_least": 2,
    }  # fmt: skip


def test_no_answer_is_quoted_where_prompts_are_dropped(watched: Watched) -> None:
    text = json.dumps(watched[0].document())
    assert "content contains the marker '<|im_end|>'" in text
    assert "cold" not in text
    assert "[dropped]" in text  # what is around it


def test_the_schema_is_a_valid_schema(watched: Watched) -> None:
    document = watched[0].document()
    with pytest.raises(jsonschema.ValidationError):
        CHECK.validate({**document, "promotion": "MAYBE"})
    with pytest.raises(jsonschema.ValidationError):
        CHECK.validate({**document, "more": 1})


def test_metrics_are_those_of_the_document(watched: Watched) -> None:
    url = watched[0].verdict_url.replace("verdict", "metrics")
    with urllib.request.urlopen(url, timeout=60) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        text = reply.read().decode()
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    prefix = "vllm_gates_shadow"
    assert samples[f"{prefix}_promotion", "REJECT"] == 1
    assert samples[f"{prefix}_promotion", "HOLD"] == 0
    assert samples[f"{prefix}_pairs_total",] == 12
    assert samples[f"{prefix}_failures_total", "canary_only", "markers"] == 4
    assert samples[f"{prefix}_figure", "0.5", "canary", "tokens"] == 7


def test_the_second_port_is_healthy_and_has_no_other_routes(watched: Watched) -> None:
    url = watched[0].verdict_url.replace("verdict", "health")
    with urllib.request.urlopen(url, timeout=60) as reply:
        assert json.load(reply) == {"status": "ok"}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url.replace("health", "nothing"), timeout=60)


def test_the_api_keeps_every_path(watched: Watched) -> None:
    path = watched[0].verdict_url.partition("/-/")[2]
    url = f"http://127.0.0.1:{watched[0].port}/-/{path}"
    with urllib.request.urlopen(url, timeout=60) as reply:
        assert reply.read().decode() == f"GET /-/{path}\n"  # the stable server's own answer


def test_the_webhook_gets_the_change_though_it_refused_once(watched: Watched) -> None:
    process, hook, _ = watched
    process.until(lambda _: any(b'"REJECT"' in seen.data for seen in hook.requests_seen[1:]))
    documents: list[Any] = [seen.body for seen in hook.requests_seen]
    for document in documents:
        CHECK.validate(document)
    assert documents[0] == documents[1]  # the second try
    assert [each["promotion"] for each in documents[1:]] in (["HOLD", "REJECT"], ["REJECT"])


def test_failing_pairs_are_incidents_without_prompts(watched: Watched) -> None:
    incidents = watched[2] / "incidents"
    # They are written aside, each to a hidden folder that gets its name when it is whole.
    watched[0].until(lambda _: any(incidents.glob("[!.]*")))
    folders = sorted(incidents.glob("[!.]*"))
    assert 1 <= len(folders) <= 3
    folder = incidents_read.read(folders[0])
    incident = folder.incident
    assert incident.findings[0].says.startswith("markers: content contains the marker")
    (send,) = incident.sends
    assert send.status == 200
    assert "Authorization" not in send.headers
    text = "".join(path.read_text() for path in folders[0].rglob("*") if path.is_file())
    assert "How is it?" not in text
    assert "cold" not in text
