"""The recipes parse, fit the command, and poll a real second port as their controllers do."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from pytest_vllm_gates.cli.main import parser
from pytest_vllm_gates.shadow import settings as shadow_settings
from pytest_vllm_gates.shadow.control import control_application
from pytest_vllm_gates.shadow.copies import MirrorCounts
from pytest_vllm_gates.shadow.decide import HOLD, PROMOTE, REJECT, Question
from pytest_vllm_gates.shadow.judging import JudgeProcess
from pytest_vllm_gates.shadow.tally import PairJudgement, SideJudgement
from pytest_vllm_gates.shadow.watch import CanaryWatch

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parents[2] / "docs" / "shadow"
FILES = sorted(FOLDER.glob("*.yaml"))
ANSWERS = (PROMOTE, HOLD, REJECT)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def watch_of(promotion: str) -> CanaryWatch:
    """Return a watch that has seen what its answer needs."""
    settings = shadow_settings.load()
    judge = JudgeProcess(None, FOLDER)
    watch = CanaryWatch(
        settings, Question(), MirrorCounts(), judge, {"stable": "s", "canary": "c"}, str
    )
    for _ in range({PROMOTE: 1100, HOLD: 10, REJECT: 10}[promotion]):
        watch.count(PairJudgement())
    for _ in range(2 * (promotion == REJECT)):
        watch.count(PairJudgement(canary=SideJudgement({"framing": "no [DONE]"})))
    return watch


async def asked(promotion: str, method: str, path: str) -> tuple[int, Any]:
    """Query a second port whose watch has this answer; return the status and the JSON."""
    runner = web.AppRunner(control_application(watch_of(promotion)))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"http://{host}:{port}{path}") as reply,
        ):
            return reply.status, await reply.json()
    finally:
        await runner.cleanup()


def argo_phase(metric: Mapping[str, Any], result: Any) -> str:
    """Return a measurement's phase, as Argo Rollouts' evaluation of conditions has it.

    https://argo-rollouts.readthedocs.io/en/stable/features/analysis/: neither condition met is
    Inconclusive where both are given. The conditions are of one form here.
    """
    phases = {"successCondition": "Successful", "failureCondition": "Failed"}
    for name, phase in phases.items():
        match = re.fullmatch(r'result == "(\w+)"', metric[name])
        assert match
        if result == match[1]:
            return phase
    return "Inconclusive"


@pytest.mark.parametrize(
    ("promotion", "phase"), [(PROMOTE, "Successful"), (HOLD, "Inconclusive"), (REJECT, "Failed")]
)
def test_argo_gets_an_answer_for_each_verdict(promotion: str, phase: str) -> None:
    (template,) = documents("argo-analysis.yaml")
    (metric,) = template["spec"]["metrics"]
    provider = metric["provider"]["web"]
    base, _, path = provider["url"].partition("/-/")
    assert base == "{{ args.shadow }}"
    status, document = asyncio.run(asked(promotion, "GET", f"/-/{path}"))
    assert status == 200
    match = re.fullmatch(r"\{\$\.(\w+)\}", provider["jsonPath"])
    assert match
    assert argo_phase(metric, document[match[1]]) == phase


@pytest.mark.parametrize("promotion", ANSWERS)
def test_flagger_goes_on_promotes_and_rolls_back(promotion: str) -> None:
    (canary,) = documents("flagger.yaml")
    passes = {}
    for hook in canary["spec"]["analysis"]["webhooks"]:
        path = "/-/" + hook["url"].partition("/-/")[2]
        status, _ = asyncio.run(asked(promotion, "POST", path))
        passes[hook["type"]] = status == 200
    assert passes == {
        "rollout": promotion != REJECT,
        "confirm-promotion": promotion == PROMOTE,
        "rollback": promotion == REJECT,
    }


def arguments(container: Mapping[str, Any]) -> Any:
    """Return what the command's own parser makes of a container's arguments."""
    command = [*container["command"], *container["args"]]
    assert command[:2] == ["vllm-gates", "shadow"]
    return parser().parse_args(command[1:])


def test_the_shadows_ports_are_those_that_the_others_use() -> None:
    deployment, service = documents("shadow.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = arguments(container)
    grace_s = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert options.drain < grace_s
    assert options.canary_key_env == container["env"][0]["name"]
    by_name = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert by_name == {"http": options.listen[1], "gates": options.control[1]}
    ports = {port["targetPort"]: port["port"] for port in service["spec"]["ports"]}
    assert ports == by_name
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/gates/health"
    texts = "".join(path.read_text(encoding="utf-8") for path in FILES)
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert set(re.findall(rf"{host}:(\d+)", texts)) == {str(options.control[1])}


def test_the_jobs_arguments_are_the_commands() -> None:
    (template,) = documents("argo-job.yaml")
    job = template["spec"]["metrics"][0]["provider"]["job"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    declared = {arg["name"]: arg["value"] for arg in template["spec"]["args"]}
    filled = [
        re.sub(r"\{\{ args\.(\w+) \}\}", lambda match: declared[match[1]], word)
        for word in container["args"]
    ]
    options = arguments({**container, "args": filled})
    assert options.stable.startswith("http://vllm-stable")
    assert options.trace == "/traces/trace.har"


@pytest.mark.parametrize("name", ["httproute-shadow.yaml", "httproute-mirror.yaml"])
def test_routes_lead_to_the_shadows_service(name: str) -> None:
    _, service = documents("shadow.yaml")
    (route,) = documents(name)
    (rule,) = route["spec"]["rules"]
    references = [*rule["backendRefs"]]
    references += [each["requestMirror"]["backendRef"] for each in rule.get("filters", ())]
    shadows = [each for each in references if each["name"] == service["metadata"]["name"]]
    assert [each["port"] for each in shadows] == [service["spec"]["ports"][0]["port"]]


def test_the_page_lists_every_file() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\S+\.yaml)\)", page)) == {path.name for path in FILES}
