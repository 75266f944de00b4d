"""Lanes that name an existing interpreter."""

from __future__ import annotations

import sys

import pytest

from environment.lane_site import Site, site_fixture  # noqa: F401, TC001 - a fixture
from pytest_vllm_gates.environment.environment import Environment
from pytest_vllm_gates.errors import UserError


def interpreter(site: Site, *distributions: str) -> str:
    """Make something that answers like an interpreter with these distributions."""
    packages = site.project / "packages"
    packages.mkdir()
    for distribution in distributions:
        (packages / f"{distribution}.dist-info").mkdir()
    program = site.project / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return str(program)


def prepare(site: Site, python: str) -> Environment:
    site.write("mine.toml", f'title = "mine"\npython = "{python}"\n')
    return site.prepare("mine")


def test_interpreter_reports_its_distributions(site: Site) -> None:
    python = interpreter(site, "vllm-0.33.0", "torch-2.14.0", "Flash_Attn-3.0")
    environment = prepare(site, python)
    assert str(environment.python) == python
    assert environment.vllm == "0.33.0"
    assert environment.versions["torch"] == "2.14.0"
    assert environment.versions["flash-attn"] == "3.0"
    assert not environment.made


def test_interpreter_path_is_relative_to_the_lane_file(site: Site) -> None:
    python = interpreter(site, "vllm-0.33.0")
    assert str(prepare(site, "../python").python).endswith("lanes/../python")
    assert python


def test_a_missing_interpreter_is_named(site: Site) -> None:
    with pytest.raises(UserError, match="the interpreter '/nowhere/python' does not exist"):
        prepare(site, "/nowhere/python")


def test_interpreter_without_vllm_is_refused_with_a_command(
    site: Site,
) -> None:
    python = interpreter(site, "torch-2.14.0")
    with pytest.raises(UserError) as raised:
        prepare(site, python)
    assert str(raised.value).endswith(
        f"the interpreter '{python}' has no vllm\ninstall it: {python} -m pip install vllm"
    )


def test_broken_interpreter_is_refused_with_its_output(site: Site) -> None:
    program = site.project / "python"
    program.write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(UserError, match="does not work: no such luck"):
        prepare(site, str(program))


@pytest.mark.parametrize(
    "form", ['command = ["docker", "run", "vllm/vllm-openai"]', 'base_url = "http://host/v1"']
)
def test_nothing_is_made_for_a_server_elsewhere(site: Site, form: str) -> None:
    site.write("there.toml", f'title = "there"\n{form}\n')
    assert site.prepare("there") == Environment(None)
    assert site.calls() == []
