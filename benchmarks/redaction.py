"""Measures how fast a log is redacted: `python benchmarks/redaction.py [MEGABYTES]`.

The log is like vLLM's, mostly requests and figures, with an occasional warning that names the Hub
and a request's header; the environment of the CI job has ten known secrets.
"""

from __future__ import annotations

import random
import string
import sys
import time

from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.redaction.stream import Stream

LINES = (
    "(APIServer pid=71) INFO 11-20 10:00:{0:02d} [loggers.py:123] Engine 000: Avg prompt"
    " throughput: {0}.3 tokens/s, Avg generation throughput: 55.1 tokens/s, Running: 4 reqs,"
    " Waiting: 0 reqs, GPU KV cache usage: 1.2%, Prefix cache hit rate: 0.0%\n",
    "(APIServer pid=71) INFO:     127.0.0.1:4{0:04d} - "
    '"POST /v1/chat/completions HTTP/1.1" 200 OK\n',
    "(EngineCore pid=99) INFO 11-20 10:00:{0:02d} [gpu_model_runner.py:2602] Starting to load model"
    " Qwen/Qwen3.5-{0}B, max_tokens={0}, tokenizer_mode=auto, enable_prefix_caching=True\n",
)
RARE = (
    "(APIServer pid=71) WARNING retrying https://huggingface.co/api/models/Qwen/Qwen3.5 {0}\n"
    "(APIServer pid=71) DEBUG headers: {{'authorization': 'Bearer {1}', 'host': 'a'}}\n"
)
READ_BYTES = 2**16


def main() -> None:
    """Print megabytes per second of processor time, and the number of redacted secrets."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    lots = random.Random(0)  # noqa: S311 - the same data every time
    letters = string.ascii_letters + string.digits
    secrets = ["".join(lots.choices(letters, k=32)) for _ in range(10)]
    text = "".join(
        LINES[position % 3].format(position % 60)
        + (RARE.format(position, secrets[position % 10]) if position % 500 == 0 else "")
        for position in range(20_000)
    ).encode()
    stream = Stream(Redactor(secrets))
    bytes_read = redacted = 0
    started = time.process_time()
    while bytes_read < megabytes * 2**20:
        for position in range(0, len(text), READ_BYTES):
            redacted += stream.feed(text[position : position + READ_BYTES]).count(b"[redacted]")
        bytes_read += len(text)
    seconds = time.process_time() - started
    print(
        f"{bytes_read / 2**20 / seconds:.0f} MB/s, {redacted} secrets in "
        f"{bytes_read / 2**20:.0f} MB"
    )


if __name__ == "__main__":
    main()
