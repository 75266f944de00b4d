"""Figures of the boot, of long_context's ladder, and of numerics' distances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html import charts
from pytest_vllm_gates.report.html.charts import BarRow
from pytest_vllm_gates.report.html.drawing import first, listing, mapping
from pytest_vllm_gates.report.html.memory import size
from pytest_vllm_gates.report.html.panels import Chart, Panel, cells, columns, known, names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.report.html.drawing import TextLimits
    from pytest_vllm_gates.report.html.panels import Side

PHASES = {
    "weights": "loading the weights",
    "engine": "starting the engine: profile, cache, warm-up",
    "compiling": "of which compiling",
    "graphs": "of which capturing graphs",
}
"""The phases in the server's log, with the names of `data/startup.toml`."""
WITHIN = ("compiling", "graphs")
"""Phases within the engine's start, which are not added again."""
DISTANCES = {"mean": "mean", "nearly_all": "99 of 100 within", "worst": "largest"}
OF_RUNGS = ("seconds", "waited", "preempted", "kv_usage_after", "memory_bytes_after")
ALLOWED = 1.0
START = "start to healthy"


def boot(several: tuple[Side, ...]) -> Panel | None:
    """Return the phases of each lane's boot; None if no server came up.

    For a server that already ran, only the first chat is known.
    """
    found = [_phases(side) for side in several]
    listed = names(found)
    if not listed:
        return None
    drawn = charts.bars(
        [
            BarRow(name, side.name, side.style, value)
            for name in listed
            for side, phases in zip(several, found, strict=True)
            if (value := phases.get(name)) is not None
        ],
        charts.seconds,
    )
    booted = any(START in phases for phases in found)
    return Panel(
        "The boot's phases" if booted else "The first chat",
        "Wall-clock seconds; the phases within the boot come from the server's log."
        if booted
        else "Wall-clock seconds. The server already ran: its start is not known.",
        (Chart("Seconds of each phase", drawn),) if drawn else (),
        ("phase", *columns(("seconds",), several)),
        tuple(
            (name, *cells([tuple(of.get(name) for of in found)], charts.seconds)) for name in listed
        ),
    )


def _phases(side: Side) -> dict[str, float]:
    """Return a boot's phases in their order, in seconds."""
    times = mapping(mapping(side.family.get("boot")).get("times"))
    healthy, chatted, token = (
        known(times.get(name)) for name in ("health_s", "first_chat_s", "first_token_s")
    )
    first_token = {} if token is None else {"the first chat's first token": token}
    if healthy is None:
        return first_token
    of_log = mapping(side.evidence("boot", "phases_s"))
    told = {name: value for name in PHASES if (value := known(of_log.get(name))) is not None}
    phases = {PHASES[name]: value for name, value in told.items()}
    inner = sum(value for name, value in told.items() if name not in WITHIN)
    if told and healthy >= inner:
        phases["the rest until it was healthy"] = healthy - inner
    phases[START] = healthy
    if chatted is not None:
        phases["healthy to the end of the first chat"] = max(0.0, chatted - healthy)
    return phases | first_token


def ladder(several: tuple[Side, ...], limits: TextLimits) -> Panel | None:
    """Return the rungs of long_context's ladder on each lane; None if there are none."""
    found = [_rungs(side.evidence("long_context", "rungs")) for side in several]
    listed, left_out = first(names(found), limits.items)
    if not listed:
        return None
    rows, bars = [], []
    for name in listed:
        rungs = [of.get(name, {}) for of in found]
        row = [name]
        for figure in OF_RUNGS:
            words = {
                "seconds": charts.seconds, "kv_usage_after": charts.percent,
                "memory_bytes_after": size,
            }.get(figure, charts.plain)  # fmt: skip
            row += cells([tuple(known(rung.get(figure)) for rung in rungs)], words)
        errors = [str(error) for rung in rungs for error in listing(rung.get("errors"))]
        rows.append((*row, "; ".join(errors[:4]) or "none"))
        bars += [
            BarRow(name, side.name, side.style, value)
            for side, rung in zip(several, rungs, strict=True)
            if (value := known(rung.get("seconds"))) is not None
        ]
    drawing = charts.bars(bars, charts.seconds)
    called = (
        "slowest answer", "most in the queue", "preemptions", "KV cache still in use after",
        "memory after",
    )  # fmt: skip
    return Panel(
        "The ladder of lengths",
        "Prompt + answer in tokens, concurrent requests, and whether the prompt was in the cache.",
        (Chart("Seconds of the slowest answer", drawing),) if drawing else (),
        ("rung", *columns(called, several), "errors"), tuple(rows), left_out,
    )  # fmt: skip


def _rungs(record: Any) -> dict[str, dict[str, Any]]:
    rungs: dict[str, dict[str, Any]] = {}
    for rung in map(mapping, listing(record)):
        tokens = [known(rung.get(name)) for name in ("prompt_tokens", "output_tokens", "at_once")]
        if None in tokens:
            continue
        prompt, output, at_once = (int(value or 0) for value in tokens)
        name = f"{prompt:,} + {output:,}" + (f" x {at_once}" if at_once > 1 else "")
        name += f", {rung.get('prefix', '')}"
        again = sum(other.startswith(name) for other in rungs)
        rungs[f"{name} ({again + 1})" if again else name] = rung
    return rungs


def distances(several: tuple[Side, ...], limits: TextLimits) -> Panel | None:
    """Return the distances from the reference's log-probabilities; None if there are none."""
    found = [_distances(side) for side in several]
    listed, left_out = first(names(found), limits.items)
    if not listed:
        return None
    allowed = mapping(several[0].evidence("numerics", "tolerance_nats"))
    rows = [
        (
            name,
            *cells(
                [
                    tuple(known(of.get(name, {}).get(figure)) for of in found)
                    for figure in DISTANCES
                ],
                charts.plain,
            ),
        )
        for name in listed
    ]
    called = [
        f"{words} ({charts.plain(limit)} allowed)"
        if (limit := known(allowed.get(figure))) is not None
        else words
        for figure, words in DISTANCES.items()
    ]
    drawing = charts.bars(
        list(_shares(several, found, allowed)), charts.percent, limit=(ALLOWED, "the tolerance")
    )
    return Panel(
        "Distance from the reference",
        "Log-probabilities in nats, by the test and its prompt.",
        (Chart("The largest distances as a share of what is allowed (dashed)", drawing),)
        if drawing
        else (),
        ("test and prompt", *columns(called, several)), tuple(rows), left_out,
    )  # fmt: skip


def _distances(side: Side) -> dict[str, dict[str, Any]]:
    found = {
        f"{_case(test)}: {name}": mapping(distance)
        for test, record in side.every("numerics", "distance_nats")
        for name, distance in mapping(record).items()
    }
    for test, record in side.every("long_context", "mean_distance_nats"):
        found |= {
            f"{_case(test)}: {name}": {"mean": mean} for name, mean in mapping(record).items()
        }
    return found


def _shares(
    several: tuple[Side, ...], found: list[dict[str, dict[str, Any]]], allowed: dict[str, Any]
) -> Iterator[BarRow]:
    """Yield the largest distance of each kind over all prompts, as a share of the tolerance."""
    for figure, words in DISTANCES.items():
        limit = known(allowed.get(figure))
        for side, of in zip(several, found, strict=True):
            values = [known(distance.get(figure)) for distance in of.values()]
            largest = max((value for value in values if value is not None), default=None)
            if limit and largest is not None:
                yield BarRow(words, side.name, side.style, largest / limit)


def _case(test: str) -> str:
    """Return a test's name without the part that all names of the gate share."""
    return test.removeprefix("test_").partition("[")[0].replace("_", " ") + _of(test)


def _of(test: str) -> str:
    """Return the prefix of a test, which comes last in its brackets: ", warm"."""
    last = test.removesuffix("]").rpartition("-")[2]
    return f", {last}" if last in ("cold", "warm") else ""
