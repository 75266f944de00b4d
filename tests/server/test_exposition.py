"""The text format of Prometheus is read as its own client reads it."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from pytest_vllm_gates.server import exposition

TEXT = """\
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a } b \\"c\\" 7"} 2.0
vllm:num_requests_running{engine="1"} 3 1700000000000
vllm:num_requests_running_seconds 9
"""


def test_samples_of_a_name_have_labels_and_values() -> None:
    """A label may contain braces, blanks and quotes; a timestamp may follow the value."""
    first, second = exposition.samples(TEXT, ("vllm:num_requests_running",))
    assert first.labels == {"engine": "0", "model_name": 'a } b "c" 7'}
    assert (first.value, second.value) == (2.0, 3.0)


def test_text_of_another_format_is_an_error_of_the_server() -> None:
    with pytest.raises(httpx.HTTPError, match=r"^/metrics is not as in the API: "):
        exposition.families("vllm:num_requests_running{engine= 2.0\n")
