"""A known line is found in any surroundings, and noise alone gives no diagnosis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from diagnosis.explaining import COMMON, HEALTHY, MEMORY, STAMP
from pytest_vllm_gates.diagnosis import explain, signature
from pytest_vllm_gates.diagnosis.matcher import Matcher

SHIPPED = signature.load_all()
KNOWN = {
    "KV_NONE": "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.",
    "GATED": "OSError: You are trying to access a gated repo.",
    "TP_HEADS": "ValueError: Total number of attention heads (14) must be divisible by tensor "
    "parallel size (4).",
    "PTX": "torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported "
    "toolchain.",
}
REAL = [
    line
    for path in sorted((Path(__file__).parents[1] / "signatures" / "healthy").glob("*.log"))
    for line in path.read_text(errors="replace").splitlines()
    if "shutdown" not in line.lower() and not line.startswith("{")
]
letters = st.text(st.characters(min_codepoint=32, max_codepoint=1000), max_size=80)
noise = st.one_of(
    st.sampled_from(HEALTHY),
    st.text("abcdefgh 0123456789", max_size=60),
    letters.map(lambda text: f"(EngineCore pid=2) INFO {STAMP} [a.py:1] {text}"),
)
# An error before the server became ready is not a failure.
before_ready = noise.filter(lambda line: "startup complete" not in line)
prefixes = st.sampled_from(
    [
        "",
        f"(EngineCore_DP0 pid=900) ERROR {STAMP} [core.py:1512] ",
        "[rank0]: ",
        "2026-11-20T10:00:00.1Z stderr F (Worker_TP1 pid=9) ",
        "Nov 20 10:00:00 host vllm[123]: ",
        "\x1b[1;31m",
    ]
)
ANY_SIZE = st.integers(1, 4000)


def blocks(text: str, size: int) -> list[bytes]:
    """Return a log in blocks of whole lines with at least `size` bytes."""
    parts, block = [], b""
    for line in text.encode("utf-8", "replace").splitlines(keepends=True):
        block += line
        if len(block) >= size:
            parts.append(block)
            block = b""
    return [*parts, block] if block else parts


def log(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


@given(st.lists(st.one_of(noise, st.sampled_from(REAL)), max_size=60), ANY_SIZE)
def test_noise_alone_gives_no_diagnosis(lines: list[str], size: int) -> None:
    explanation = explain.explain(blocks(log(*lines), size), SHIPPED)
    assert explanation.id is None, "\n".join(explanation.lines())
    assert explanation.warnings == ()


@settings(max_examples=200)
@given(
    st.lists(noise, max_size=40), st.sampled_from(sorted(KNOWN)), prefixes,
    st.lists(before_ready, max_size=40), ANY_SIZE,
)  # fmt: skip
def test_a_known_line_is_found_in_any_noise(
    before: list[str], signature_id: str, prefix: str, after: list[str], size: int
) -> None:
    text = log(*before, prefix + KNOWN[signature_id], *after)
    explanation = explain.explain(blocks(text, size), SHIPPED)
    assert explanation.id == signature_id, "\n".join(explanation.lines())
    assert explanation.answer
    assert explanation.answer.line == text[: text.index(KNOWN[signature_id])].count("\n") + 1
    assert explanation.lines_read == text.count("\n")


@given(st.lists(noise, max_size=20), st.sampled_from(sorted(KNOWN)))
def test_json_collector_lines_are_diagnosed(before: list[str], signature_id: str) -> None:
    json_lines = [json.dumps({"log": f"{line}\n", "stream": "stderr"}) for line in before]
    json_failure = json.dumps({"log": f"\x1b[31m(EngineCore pid=1) {KNOWN[signature_id]}\n"})
    assert explain.explain([log(*json_lines, json_failure).encode()], SHIPPED).id == signature_id


# A banner after a failure begins another boot, and a boot that became ready had no failure.
OTHER_BOOT = ("version", "non-default", "startup complete")
BETWEEN = [line for line in HEALTHY if not any(word in line for word in OTHER_BOOT)]


@given(st.permutations(range(6)), st.lists(st.sampled_from(BETWEEN), max_size=6), ANY_SIZE)
def test_ranks_in_any_order_give_one_answer(
    ranks: list[int], between: list[str], size: int
) -> None:
    lines = []
    for place, rank in enumerate(ranks):
        lines += [f"(Worker_TP{rank} pid={rank}) ERROR {STAMP} [a.py:1] {MEMORY}"]
        lines += between[place : place + 1]
    diagnosis = explain.explain(blocks(log(*lines), size), COMMON).answer
    assert diagnosis
    assert (diagnosis.id, diagnosis.line, diagnosis.times) == ("MEMORY", 1, 6)
    assert diagnosis.processes == tuple(f"Worker_TP{rank}" for rank in range(6))


@given(st.lists(noise, max_size=40), st.sampled_from(sorted(KNOWN)), ANY_SIZE, ANY_SIZE)
def test_diagnosis_is_independent_of_block_size(
    lines: list[str], signature_id: str, size: int, other_size: int
) -> None:
    text = log(*lines, KNOWN[signature_id], *lines)
    explanations = [explain.explain(blocks(text, number), SHIPPED) for number in (size, other_size)]
    assert explanations[0] == explanations[1]


@given(st.binary(max_size=3000))
def test_arbitrary_bytes_raise_nothing(raw: bytes) -> None:
    assert explain.explain([raw, b"\n", raw], SHIPPED).lines_read >= 0


@pytest.mark.parametrize("lines", [100, 20_000])
def test_memory_does_not_grow_with_the_log(lines: int) -> None:
    many = [
        f"(Worker_TP{number % 99} pid=1) ERROR {STAMP} [a.py:1] ValueError: {number}"
        for number in range(lines)
    ]
    matcher = Matcher(explain.table(COMMON))
    for block in blocks(log(*many, *[MEMORY] * lines), 100_000):
        matcher.feed(block)
    matcher.finish()
    assert len(matcher.errors) <= 100
    (match,) = matcher.seen.values()
    assert len(match.numbers) <= 100
    assert len(match.processes) <= 64
