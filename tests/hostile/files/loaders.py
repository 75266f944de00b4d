"""The loaders of files from outside, each with a good file."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import hashlib
import json
import struct
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.made_fleets import plan_of, verdict as shard_verdict
from incident_folders_made import written
from report.documents import REJECT, load as report_document
from runs import entry
from throughput.test_baselines import BLOCKS, at, now
from warmup.test_types import boot as warm_boot, times as warm_times

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.limits import MIB
from pytest_vllm_gates.catalog import (
    family as families,
    known_defects,
    lane as lanes,
    outside,
    waivers,
)
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.conversation import Conversation
from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.checkpoints import (
    files as checkpoint_files,
    fingerprint,
    prompt_files,
    safetensors,
)
from pytest_vllm_gates.cli import explain_context
from pytest_vllm_gates.cli.plan import read_config
from pytest_vllm_gates.contracts import checks as contract_checks
from pytest_vllm_gates.diagnosis import explain
from pytest_vllm_gates.diagnosis.signature import SignatureClass
from pytest_vllm_gates.environment import installed
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fleet import merged, reports as fleet_reports, shards as fleet_shards
from pytest_vllm_gates.goldens import CorruptGolden, lock_golden
from pytest_vllm_gates.history import store as history_store
from pytest_vllm_gates.incidents import read as incidents_read
from pytest_vllm_gates.incidents.importers import curl, har, openai_batch, openai_log, vllm_log
from pytest_vllm_gates.incidents.types import NAME
from pytest_vllm_gates.lanes import freeze
from pytest_vllm_gates.load import traces
from pytest_vllm_gates.memory_plan.plan import plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import Room, Serving
from pytest_vllm_gates.nightly import hosts as nightly_hosts, wheels as nightly_wheels
from pytest_vllm_gates.preflight import gather
from pytest_vllm_gates.report import publish
from pytest_vllm_gates.report.memory_plan import as_json, as_text
from pytest_vllm_gates.server import log
from pytest_vllm_gates.session.golden_files import read_golden
from pytest_vllm_gates.warmup import record as warmup_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REFUSES = (UserError, CorruptGolden)
"""The documented errors of loaders."""
DAY = datetime.date(2026, 11, 24)
GATES = ("boot", "streaming")


def _wheels(path: Path) -> None:
    hosts = nightly_hosts.shipped()
    document = bounded_read.json(path, unique=True, whole=True)
    nightly_wheels.chosen(document, "a" * 40, f"{hosts.wheels}/a/vllm/metadata.json", hosts)


@dataclass(frozen=True)
class Loader:
    """A loader of one kind of file: the file's name in a folder, a good one, and what reads it."""

    name: str
    file: str
    sample: Callable[[], bytes]
    load: Callable[[Path], object]
    kind: str = "text"
    """`toml`, `json`, `text`, `bytes`: what may be wrong with it."""
    tolerant: bool = False
    """Whether every content of a file has a meaning, as a log's has."""
    any_key: bool = False
    """Whether it may have keys that the loader does not know."""

    def path(self, folder: Path) -> Path:
        """Return where the file lies in a folder, which is made."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _incident(folder: Path) -> object:
    found = incidents_read.read(folder)
    return [found.sent(send) for send in found.incident.sends]


@cache
def _incident_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = written(Path(name))
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }


def _signed_incident(path: Path) -> object:
    """Read an incident that has this incident.json, with a digest that fits."""
    folder = path.parent / "incident"
    for name, data in _incident_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    try:
        document = bounded_read.json_object(path)
        document["sha256"] = incidents_read.digest(document)
        content = json.dumps(document).encode("utf-8")
    except UserError:
        content = bounded_read.data(path, 8 * MIB)
    (folder / NAME).write_bytes(content)
    return _incident(folder)


def _response(path: Path) -> object:
    """Read an incident with this response."""
    data = bounded_read.data(path, 8 * MIB)
    folder = path.parent / "incident"
    for name, content in _incident_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "responses" / "1.jsonl").write_bytes(data)
    document = json.loads(_incident_files()[NAME])
    document["files"]["responses/1.jsonl"] = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
    }
    document["sha256"] = incidents_read.digest(document)
    (folder / NAME).write_text(json.dumps(document))
    return _incident(folder)


def _of_folder(make: Callable[[Path], object], suffix: str) -> Callable[[], bytes]:
    """Return what gives the one file of a suffix that `make` writes into a folder."""

    def sample() -> bytes:
        with tempfile.TemporaryDirectory() as name:
            make(Path(name))
            (path,) = (each for each in Path(name).rglob(f"*{suffix}") if each.is_file())
            return path.read_bytes()

    return sample


def _baseline(path: Path) -> object:
    return at(path.parent.parent).recorded()


def _calibration(path: Path) -> object:
    return at(path.parent.parent).calibration()


def _memory_plan(path: Path) -> object:
    _, config = read_config(path)
    made = plan(shape_of(config), Serving(), Room(device_memory=2**36, utilization=0.9), 0.1)
    return as_text(made), json.dumps(as_json("x", made))


def _model(path: Path) -> object:
    model = checkpoint_files.read(Checkpoint("own", str(path.parent)))
    if model.problem:
        raise UserError(model.problem)
    return model.text, model.integer("hidden_size"), model.quantization


def _header(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _weights(path: Path) -> object:
    tensors = list(safetensors.read(path))
    (path.parent / "config.json").write_text("{}")
    problem = checkpoint_files.read(Checkpoint("own", str(path.parent))).weights_problem
    if problem:
        raise UserError(problem)
    return tensors


def _waivers(path: Path) -> object:
    return waivers.load_all(path.parent, GATES, DAY)


SERVER_CONFIG = b"""model: org/name
max-model-len: 8192
enforce-eager: true
compilation-config: {level: 3, cudagraph_capture_sizes: [1, 2]}
"""


def _server_config(path: Path) -> object:
    return explain_context.situation_of([str(path)], None, here=False, project=path.parent)


def _node(path: Path) -> object:
    return gather.node(path)


def _frozen(path: Path) -> object:
    lane = lanes.Lane(name="own", file=path.parent / "own.toml", title="x", lock="own.txt")
    return freeze.contents(lane)


def _imported(module: Any) -> Callable[[Path], object]:
    def load(path: Path) -> object:
        return module.requests(bounded_read.text(path), path.parent)

    return load


def _explained(path: Path) -> object:
    explanation = explain.explain(log.blocks(path), _classes(), None, None)
    return explanation.document(), explanation.lines(), log.earliest_error(path)


@cache
def _classes() -> Any:
    from pytest_vllm_gates.diagnosis import signature  # noqa: PLC0415

    return signature.load_all()


def _shard(path: Path) -> object:
    """Read a shard's folder in which this is the one file that may be wrong, and merge it."""
    plan = plan_of()
    if path.name == fleet_reports.RECORD:
        (path.parent / "verdict.json").write_bytes(_shard_verdict())
    else:
        fleet_reports.begin(path.parent / "own", plan, plan.shards[0])
        path = path.replace(path.parent / "own" / path.name)
    return merged.document(plan, merged.merge(plan, fleet_reports.read([path.parent])))


def _shard_record() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        plan = plan_of()
        fleet_reports.begin(Path(name), plan, plan.shards[0])
        return Path(name, fleet_reports.RECORD).read_bytes()


def _shard_verdict() -> bytes:
    return json.dumps(shard_verdict(plan_of().shards[0])).encode()


def _history(path: Path) -> object:
    return history_store.runs(path, 10), history_store.families(path)


def _gunzipped(path: Path) -> object:
    return bounded_read.gunzipped(path, bounded_read.data(path, MIB), 8 * MIB)


FAMILY = (families.SHIPPED / "gemma.toml").read_bytes
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "vocab_size": 151936, "torch_dtype": "bfloat16",
    "max_position_embeddings": 40960, "sliding_window": None, "tie_word_embeddings": True,
    "rope_theta": 1000000.0, "quantization_config": {"quant_method": "fp8", "bits": 8},
}  # fmt: skip
TENSORS = {
    "__metadata__": {"format": "pt"},
    "model.layers.0.w": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16]},
}
LANE = b"""\
title = "a lane"
python = "/usr/bin/python3"
checkpoint = "miniature"

[env]
A = "1"

[serve]
max_model_len = 4096
gpu_memory_utilization = 0.9

[load]
concurrency = 4

[throughput.baseline]
blocks = 9
"""
CONVERSATION = b"""\
title = "a call"
repeat_last = 2
ask = true
answer_holds = ["a"]

[[messages]]
role = "user"
content = "Hi"

[[tools]]
type = "function"
function = { name = "f", parameters = { type = "object" } }
"""
WAIVERS = b"""\
[[waiver]]
check = "qwen3.5: streaming: test_usage*"
who = "jane@example.org"
why = "the client is mended on Friday"
until = 2026-12-01
lane = "cpu"
"""
DEFECTS = b"""\
[[known_defects]]
check = "wrong_requests_are_refused"
what = "a message without content is answered"
versions = ">=0.30,<0.34"
reference = "vllm#1"
when = { case = ["a message without content"] }
shows = "^answered (200|500), and not refused.*"
"""
SIGNATURES = b"""\
title = "mine"

[[signatures]]
id = "MINE"
title = "the flux is broken"
phase = "serving"
patterns = ['flux (?P<name>\\w+) broke (?:.*) at \\d{1,4}$']
references = ["x"]
when = { near = ["reactor .* down"], within = 9 }
text = { cause = "flux {name} broke", cause_plain = "it broke", fixes = ["mend it"] }
"""
TRACE = b"""\
{"timestamp": 0, "input_length": 600, "output_length": 52, "hash_ids": [1, 2]}
{"timestamp": 3000, "input_length": 100, "output_length": 5}
"""
TABLE = b"""\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
BATCH = b"""\
{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "n": 1}}
{"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}}
"""
CURL = b"""\
curl -X POST 'http://127.0.0.1:8000/v1/chat/completions' -H "Content-Type: application/json" \\
  --data-raw $'{"model": "qwen3.5", "messages": [{"role": "user", "content": "a\\u00e9"}]}'
"""
HAR = json.dumps(
    {"log": {"entries": [{
        "request": {"method": "POST", "url": "http://h/v1/completions", "headers": [
            {"name": "a", "value": "b"}], "postData": {"text": '{"model": "m", "prompt": "x"}'}},
        "response": {"status": 200, "headers": [], "content": {"text": "e30=",
                     "encoding": "base64"}},
        "timings": {"wait": 12.5},
    }]}}
).encode()  # fmt: skip
OPENAI_LOG = (
    b"DEBUG Request options: {'method': 'post', 'url': '/chat/completions', 'json_data': "
    b"{'messages': [{'role': 'user', 'content': 'Hi'}], 'model': 'm'}, 'extra_json': {'a': 1}}\n"
)
VLLM_LOG = (
    b"INFO Received request cmpl-1: prompt: 'Hi', params: SamplingParams(n=1, temperature=0.0, "
    b"stop=['a'], max_tokens=16), prompt_token_ids: [1, 2, 3], lora_request: None.\n"
    b'DEBUG Request chatcmpl-2 JSON body: {"model": "m", "messages": []}\n'
)
LOG = b"""\
INFO 11-20 10:00:00 [api_server.py:1] vLLM API server version 0.30.0
(EngineCore pid=12) ERROR 11-20 10:00:01 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. \
Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.
{"log": "ValueError: No available memory for the cache blocks.\\n", "stream": "stderr"}
"""
WHEELS = [
    {"package_name": "vllm", "version": "0.23.1rc1.dev1403+g4080263bb", "build_tag": None,
     "python_tag": "cp38", "abi_tag": "abi3", "platform_tag": "manylinux_2_28_aarch64",
     "variant": "cu129", "path": "../vllm-0.23.1-cp38-abi3-manylinux_2_28_aarch64.whl",
     "filename": "vllm-0.23.1-cp38-abi3-manylinux_2_28_aarch64.whl"},
]  # fmt: skip
LOCK = b"""\
# a lock
torch==2.13.0 ; python_version >= "3.11"
vllm==0.30.0 --hash=sha256:abc
numpy @ https://example.org/numpy.whl
"""
CONTRACTS = b"golden 1: contracts, routes: x\n\n# note\n\nGET /v1/models: 200\n\nend of golden\n"
INVENTORY = {
    "format": freeze.FORMAT, "version": 1, "machine": {"gpus": []}, "contents": {"a": "b"},
    "bundle": {"versions": {"vllm": "0.30.0"}},
}  # fmt: skip
TOKENIZER_CONFIG = {"chat_template": "{{ messages }}", "model_max_length": 10**30, "bos": None}
MACHINE = "golden/a-processor-9000-3-ghz-2-cores"


def _as_json(value: object) -> Callable[[], bytes]:
    return lambda: json.dumps(value, indent=1).encode()


def _warmup() -> bytes:
    return json.dumps(warmup_record.document(warm_times(warm_boot(30.0)))).encode()


def _calibration_sample() -> bytes:
    payload = {
        "format": 1, "conditions": dataclasses.asdict(now()), "versions": {"vllm": "1"},
        "pair_sd": {"output_tokens_per_s": 0.1, "ttft_s": 0.1, "itl_s": 0.1}, "count": 3,
        "pairs": [],
    }  # fmt: skip
    return json.dumps({"vllm_gates": payload}).encode()


LOADERS = {
    loader.name: loader
    for loader in (
        Loader("family", "families/own.toml", FAMILY,
               lambda path: families.load("own", path.parent.parent), "toml"),
        Loader("lane", "lanes/own.toml", lambda: LANE,
               lambda path: lanes.load("own", path.parent.parent), "toml"),
        Loader("conversation", "own.toml", lambda: CONVERSATION,
               lambda path: outside.load(path, Conversation, name="own"), "toml"),
        Loader("waivers", "waivers.toml", lambda: WAIVERS, _waivers, "toml"),
        Loader("known_defects", "known_defects.toml", lambda: DEFECTS,
               lambda path: known_defects.load_all(path.parent), "toml"),
        Loader("signatures", "own.toml", lambda: SIGNATURES,
               lambda path: outside.load(path, SignatureClass, name="own"), "toml"),
        Loader("fleet_plan", fleet_shards.FILE, lambda: fleet_shards.text(plan_of()).encode(),
               fleet_shards.read, "json"),
        Loader("shard", fleet_reports.RECORD, _shard_record, _shard, "json"),
        Loader("shard_verdict", "verdict.json", _shard_verdict, _shard, "json", any_key=True),
        Loader("baseline", f"{MACHINE}/0001_qwen3.5-miniature-cpu.json",
               _of_folder(lambda folder: at(folder).record(BLOCKS, {}), ".json"), _baseline,
               "json"),
        Loader("calibration", f"{MACHINE}/calibration_qwen3.5-miniature-cpu.json",
               _calibration_sample, _calibration, "json"),
        Loader("history", "history.sqlite",
               _of_folder(lambda folder: history_store.append(folder / "h.sqlite", entry(1)),
                          ".sqlite"), _history, "bytes"),
        Loader("verdict", "verdict.json", lambda: json.dumps(report_document(REJECT)).encode(),
               publish.read, "json"),
        Loader("incident", "incident.json", lambda: _incident_files()[NAME],
               _signed_incident, "json"),
        Loader("response", "1.jsonl", lambda: _incident_files()["responses/1.jsonl"],
               _response, "lines"),
        Loader("plan_config", "config.json", _as_json(CONFIG), _memory_plan, "json"),
        Loader("model_config", "config.json", _as_json(CONFIG), _model, "json",
               any_key=True),
        Loader("prompt_config", "config.json", _as_json(CONFIG),
               lambda path: prompt_files.config(str(path.parent)), "json", any_key=True),
        Loader("weights", "model.safetensors",
               lambda: _header(json.dumps(TENSORS).encode()) + b"\0" * 16, _weights, "bytes"),
        Loader("weights_index", "model.safetensors.index.json",
               _as_json({"metadata": {"total_size": 16}, "weight_map": {"w": "a"}}),
               lambda path: safetensors.weights_bytes(path.parent, 1), "json"),
        Loader("tokenizer_config", "tokenizer_config.json", _as_json(TOKENIZER_CONFIG),
               lambda path: fingerprint.of(Checkpoint("own", str(path.parent)), {}), "json",
               tolerant=True),
        Loader("golden", "plain.txt", lambda: lock_golden("x", {"a": b"1"}).encode(), read_golden),
        Loader("contracts", "contracts.txt", lambda: CONTRACTS,
               lambda path: contract_checks.parsed(read_golden(path))),
        Loader("trace", "trace.jsonl", lambda: TRACE,
               lambda path: traces.take(path, planned_traffic()), "lines"),
        Loader("trace_table", "trace.csv", lambda: TABLE,
               lambda path: traces.take(path, planned_traffic())),
        Loader("trace_batch", "batch.jsonl", lambda: BATCH,
               lambda path: traces.take(path, planned_traffic()), "lines"),
        Loader("curl", "request.sh", lambda: CURL, _imported(curl)),
        Loader("har", "requests.har", lambda: HAR, _imported(har), "json"),
        Loader("openai_log", "client.log", lambda: OPENAI_LOG, _imported(openai_log)),
        Loader("openai_batch", "requests.jsonl", lambda: BATCH, _imported(openai_batch), "lines"),
        Loader("warmup", "times.json", _warmup, warmup_record.read, "json", any_key=True),
        Loader("vllm_log", "server.log", lambda: VLLM_LOG, _imported(vllm_log)),
        Loader("server_config", "serve.yaml", lambda: SERVER_CONFIG, _server_config),
        Loader("log", "vllm.log", lambda: LOG, _explained, tolerant=True),
        Loader("log_gz", "log.txt.gz", lambda: gzip.compress(LOG), _gunzipped, "bytes"),
        Loader("inventory", "node.json", _as_json(INVENTORY), _node, "json"),
        Loader("frozen_lane", "own.inventory.json", _as_json(INVENTORY), _frozen, "json"),
        Loader("nightly_wheels", "metadata.json", _as_json(WHEELS), _wheels, "json",
               any_key=True),
        Loader("lock", "own.txt", lambda: LOCK,
               lambda path: installed.pinned_requirements(path, "3.11.7")),
    )
}  # fmt: skip


def samples() -> Iterator[tuple[Loader, bytes]]:
    """Yield every loader with its good file."""
    for loader in LOADERS.values():
        yield loader, loader.sample()
