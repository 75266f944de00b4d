"""`vllm-gates shadow`: copies real traffic to a canary, and judges it pair by pair."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_vllm_gates.catalog import family as families, project as projects
from pytest_vllm_gates.cli import numbers
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.redaction.prompts import DROP, MODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.client.exchange import Sent

SUMMARY = """forward every request to a stable server, send a copy to a canary whose answers clients
never get, judge both, and report PROMOTE, REJECT or HOLD at any moment"""
FOLDER = "incidents"
LIBRARY = "aiohttp"
MIB = 2**20
LOOPBACK = "127.0.0.1"
LOOPBACKS = (LOOPBACK, "localhost", "::1")
MOST_PORT = 2**16 - 1


def declare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser("shadow", help=SUMMARY, description=SUMMARY)
    parser.add_argument(
        "--stable", metavar="URL",
        help="the server that answers the clients; with --from, recorded answers are compared "
        "instead if it is not given",
    )  # fmt: skip
    parser.add_argument("--canary", required=True, metavar="URL", help="the server to judge")
    parser.add_argument(
        "--listen", type=_address, default=(LOOPBACK, 8080), metavar="[HOST:]PORT",
        help=f"the address for clients (default: {LOOPBACK}:8080)",
    )  # fmt: skip
    parser.add_argument(
        "--control", type=_address, default=(LOOPBACK, 8081), metavar="[HOST:]PORT",
        help=f"the address for controllers: /-/gates/verdict and /-/gates/metrics (default: "
        f"{LOOPBACK}:8081)",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="trace", metavar="FILE",
        help="send the requests of a file instead of listening for clients: a HAR file, an OpenAI "
        "batch file, a log of OpenAI's client or of vLLM, an incident, a curl command or one body",
    )  # fmt: skip
    parser.add_argument(
        "--model", metavar="FAMILY", help="the family; default: found from the model's name"
    )
    _declare_mirror(parser)
    _declare_question(parser)
    parser.add_argument(
        "--page", action="store_true",
        help="serve a live page of both sides at /-/gates/page of --control",
    )  # fmt: skip
    parser.add_argument("--webhook", metavar="URL", help="gets each change of the verdict")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the last document to this file"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(FOLDER), metavar="DIR",
        help=f"the folder for incidents of pairs that only the canary fails (default: {FOLDER})",
    )  # fmt: skip
    parser.add_argument(
        "--incidents", type=numbers.whole, default=20, metavar="N",
        help="keep at most N incidents (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--redact-prompts", choices=MODES, default=DROP,
        help="how to treat prompts and answers in incidents; only kept ones can be sent again "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def _declare_mirror(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--share", type=numbers.share, default=1.0, metavar="RATE",
        help="the share of requests to copy (default: all)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="the seed for choosing that share")
    parser.add_argument(
        "--canary-key-env", metavar="NAME",
        help="the variable with the canary's key; clients' keys are never sent to the canary",
    )  # fmt: skip
    parser.add_argument(
        "--stable-key-env",
        metavar="NAME",
        help="with --from: the variable with the stable server's key",
    )
    parser.add_argument(
        "--in-flight", type=numbers.positive, default=64, metavar="N",
        help="concurrent requests to the canary (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--waiting", type=numbers.whole, default=256, metavar="N",
        help="most copies that wait in the queue; more are dropped, and counted (default: "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--pair-mib", type=numbers.positive, default=4, metavar="N",
        help="most bytes kept of one answer; a larger answer of the canary counts as a failure "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--memory-mib", type=numbers.positive, default=256, metavar="N",
        help="most bytes kept of all requests and answers at once (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--canary-timeout", type=numbers.seconds, default=120.0, metavar="SECONDS",
        help="seconds that the canary may take for an answer (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--drain", type=numbers.seconds, default=30.0, metavar="SECONDS",
        help="seconds after SIGTERM for open requests to end (default: %(default)g)",
    )  # fmt: skip


def _declare_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--alpha", type=numbers.share, default=1e-3, metavar="P",
        help="the chance of a false REJECT, however often it is read (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--margin", type=numbers.share, default=0.01, metavar="RATE",
        help="for PROMOTE: how much more often the canary may fail (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--least-pairs", type=numbers.positive, default=500, metavar="N",
        help="least pairs for PROMOTE (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--pairs", type=numbers.positive, metavar="N", help="end after N pairs")
    parser.add_argument("--minutes", type=numbers.seconds, metavar="M", help="end after M minutes")
    parser.add_argument(
        "--until-verdict", action="store_true", help="end at the first PROMOTE or REJECT"
    )


def run(options: argparse.Namespace) -> int:
    """Run until the end; 0 PROMOTE, 1 REJECT, 6 HOLD."""
    if find_spec(LIBRARY) is None:
        raise UserError(
            f"vllm-gates shadow needs {LIBRARY}, which is not installed\n"
            "pip install 'pytest-vllm-gates[shadow]'"
        )
    import asyncio  # noqa: PLC0415 - slow to import, as what follows

    from pytest_vllm_gates.shadow import serve  # noqa: PLC0415
    from pytest_vllm_gates.shadow.document import summary  # noqa: PLC0415

    if not options.stable and not options.trace:
        raise UserError("--stable URL is missing; without it, --from FILE must have answers")
    ready = functools.partial(_ready, with_page=options.page)
    with asyncio.Runner(loop_factory=serve.fast_loop()) as runner:
        document = runner.run(serve.run(_shadow(options), ready))
    print(summary(document), flush=True)
    if options.json:
        write_whole(options.json, json.dumps(document, indent=1) + "\n")
    return int(document["exit_status"])


def _shadow(options: argparse.Namespace) -> Any:
    from pytest_vllm_gates.shadow import settings  # noqa: PLC0415
    from pytest_vllm_gates.shadow.copies import MirrorLimits  # noqa: PLC0415
    from pytest_vllm_gates.shadow.decide import Question  # noqa: PLC0415
    from pytest_vllm_gates.shadow.failing import FailingPairs, shadow_redactor  # noqa: PLC0415
    from pytest_vllm_gates.shadow.plan import Shadow  # noqa: PLC0415

    _refuse_a_circle(options)
    project = projects.current()
    family = families.load(options.model, project).name if options.model else None
    canary, canary_key = _root("--canary", options.canary), _key(options.canary_key_env)
    stable_key = _key(options.stable_key_env)
    redactor = shadow_redactor(options.redact_prompts, canary, (canary_key, stable_key), project)
    failing = FailingPairs(
        options.out, f"{canary}/v1", options.incidents, family, project, redactor
    )
    return Shadow(
        stable=_root("--stable", options.stable) if options.stable else None,
        canary=canary,
        settings=settings.load(),
        project=project,
        stable_key=stable_key,
        canary_key=canary_key,
        listen=options.listen,
        control=options.control,
        share=options.share,
        seed=options.seed,
        family=family,
        question=Question(options.alpha, options.margin, options.least_pairs),
        limits=MirrorLimits(
            in_flight=options.in_flight,
            waiting=options.waiting,
            side_bytes=options.pair_mib * MIB,
            all_bytes=options.memory_mib * MIB,
            canary_s=options.canary_timeout,
        ),
        webhook=options.webhook,
        pairs=options.pairs,
        minutes=options.minutes,
        until_verdict=options.until_verdict,
        drain_s=options.drain,
        trace=_trace(options) if options.trace else None,
        failing=failing if options.incidents else None,
        with_page=options.page,
        redactor=redactor,
    )


def _trace(options: argparse.Namespace) -> Sequence[Sent]:
    from pytest_vllm_gates.incidents.importers import sources  # noqa: PLC0415

    imported = sources.of_anything(options.trace, None, None, None)
    for note in imported.notes:
        print(note, file=sys.stderr)
    unanswered = sum(sent.status is None for sent in imported.sends)
    if unanswered and not options.stable:
        raise UserError(
            f"{unanswered} requests of {options.trace} have no recorded answer: name the server "
            "to compare with, --stable URL"
        )
    return imported.sends


def _ready(proxy_url: str, control_url: str, *, with_page: bool) -> None:
    if proxy_url:
        print(f"clients: {proxy_url}/v1")
    print(f"controllers: {control_url}/-/gates/verdict", flush=True)
    if with_page:
        print(f"page: {control_url}/-/gates/page", flush=True)


def _root(option: str, url: str) -> str:
    """Return a server's URL without `/v1`: requests have their own path."""
    if not url.startswith(("http://", "https://")):
        raise UserError(f"{option}: expected a URL like http://127.0.0.1:8000, got {url!r}")
    return url.rstrip("/").removesuffix("/v1")


def _refuse_a_circle(options: argparse.Namespace) -> None:
    """Refuse servers that are the shadow itself, which would send requests to itself."""
    if options.trace:
        return
    for option, url in (("--stable", options.stable), ("--canary", options.canary)):
        parts = urlsplit(_root(option, url))
        try:
            port = parts.port
        except ValueError as error:
            raise UserError(f"{option} {url!r} is not a URL: {error}") from error
        if parts.hostname in LOOPBACKS and port == options.listen[1] != 0:
            raise UserError(
                f"{option} {url} is the address of the shadow itself\n"
                "choose another port for clients: --listen PORT"
            )


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name)
    if not key:
        raise UserError(f"${name} is not set: export the server's key in it")
    return key


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > MOST_PORT:
        raise argparse.ArgumentTypeError(f"expected [HOST:]PORT, got {text!r}")
    return host.strip("[]") or LOOPBACK, int(port)
