"""Names, types and labels are read from a text of Prometheus' format, values are not."""

from __future__ import annotations

import httpx2 as httpx
import pytest
from servers import running
from servers.scripted import ScriptedServer, Text

from pytest_vllm_gates.contracts.metric_families import fetch, parse
from pytest_vllm_gates.contracts.types import Metric

TOLD = """\
# HELP vllm:request_success_total Count of requests, {all} of them.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop"} 3.0
vllm:request_success_total{engine="0",model_name="a \\"b\\", c=\\"d\\""} 1.0
# TYPE vllm:request_success_created gauge
vllm:request_success_created{engine="0"} 1.79e+09
# TYPE vllm:e2e_seconds histogram
vllm:e2e_seconds_bucket{engine="0",le="0.5"} 0.0
vllm:e2e_seconds_count{engine="0"} 1.0
vllm:e2e_seconds_sum{engine="0"} 0.3
# TYPE size_bytes summary
size_bytes_count{handler="/v1/models"} 2.0
size_bytes{handler="/v1/models",quantile="0.5"} 2.0
# TYPE token_count gauge
token_count 5.0 1700000000
# TYPE vllm:lora_requests_info gauge
no_type_at_all{label="x"} 1.0
"""


def test_families_with_their_labels() -> None:
    assert parse(TOLD) == {
        "vllm:request_success_total": Metric(
            "counter", ("engine", "finished_reason", "model_name")
        ),
        "vllm:request_success_created": Metric("gauge", ("engine",)),
        "vllm:e2e_seconds": Metric("histogram", ("engine",)),
        "size_bytes": Metric("summary", ("handler",)),
        "token_count": Metric("gauge", ()),
        "vllm:lora_requests_info": Metric("gauge", None),
    }


def test_page_without_metrics_is_not_a_servers() -> None:
    page = "<html>\n<body class={x}> Welcome 1\n</html>"
    with pytest.raises(httpx.HTTPError, match=r"^/metrics is not as in the API: "):
        parse(page)
    with running(ScriptedServer(lambda *_: (200, Text(page)))) as server:
        assert fetch(server.endpoint) is None
