"""An untrusted template that needs too much, or breaks out, ends with a message about it."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING, Any

import pytest
from survivors import alive, until

from prompts.test_reference import ASKED, SHOWING, folder, made, said  # noqa: F401 - fixtures
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.goldens import Refused
from pytest_vllm_gates.prompts import starter as starters
from pytest_vllm_gates.prompts.limits import RenderLimits
from pytest_vllm_gates.prompts.types import OverLimit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prompts.test_reference import Made

MEMORY = "needs more than 128 MiB of memory (VLLM_GATES_RENDER_MIB sets the limit)"
CHARACTERS = "writes more than 100,000 characters (VLLM_GATES_RENDER_CHARACTERS sets the limit)"
BUSY = "was still busy with"
DEEP = "calls itself, or is nested, more than"
ATTACKS = {
    "one constant": ("{{ 'a' * 10**9 }}", MEMORY),
    "one format": ("{{ '%999999999d' | format(1) }}", MEMORY),
    "a centred text": ("{{ 'a' | center(10**9) }}", MEMORY),
    "a text that doubles": (
        "{% set ns = namespace(t='aa') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}"
        "{% endfor %}",
        MEMORY,
    ),
    "a list that doubles": (
        "{% set ns = namespace(t=[1]) %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}"
        "{% endfor %}",
        MEMORY,
    ),
    "a large output": ("{% for i in range(99999) %}aaaaaaaaaa{% endfor %}", CHARACTERS),
    "a long range": ("{% for i in range(10**12) %}x{% endfor %}", "Range too big"),
    "loops in loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        BUSY,
    ),
    "a large power": ("{{ 9 ** (9 ** 9) }}", BUSY),
    "a macro that calls itself": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", DEEP),
    "nested brackets": ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", DEEP),
    "nested loops": ("{% for a in [1] %}" * 300 + "{% endfor %}" * 300, ""),
    "nested conditions": ("{% if 1 %}" * 5000 + "{% endif %}" * 5000, DEEP),
    "a class": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "is unsafe"),
    "a class by attr": ("{{ ('' | attr('__class__')).mro() }}", ""),
    "globals": ("{{ messages.append.__globals__ }}", "is unsafe"),
    "a frame": ("{{ cycler.__init__.__globals__.os.environ }}", "is unsafe"),
    "a file": ("{% include '/etc/hostname' %}", "no loader for this environment"),
    "a long refusal": ("{{ raise_exception('a' * 10**7) }}", "a" * 2000 + "…"),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = RenderLimits(seconds=5.0, again_s=5.0, memory_mib=128, characters=100_000)
    monkeypatch.setattr(RenderLimits, "from_environment", lambda: limits)


@pytest.mark.parametrize("name", ATTACKS)
def test_template_that_needs_too_much_is_a_user_error(
    made: Made,  # noqa: F811 - a fixture
    folder: Path,  # noqa: F811
    name: str,
) -> None:
    template, message = ATTACKS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError) as caught:
        made(template)
    text = str(caught.value)
    assert text.startswith("checkpoint weights: the chat template ")
    assert message in text
    assert len(text) < 3000
    if message in (MEMORY, CHARACTERS, BUSY, DEEP):
        assert f"it is {folder / 'chat_template.jinja'}" in text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


@pytest.mark.parametrize("name", ["one constant", "a large output", "a macro that calls itself"])
def test_conversation_that_needs_too_much_is_a_finding(
    made: Made,  # noqa: F811
    name: str,
) -> None:
    template, message = ATTACKS[name]
    # In a variable: jinja computes constants when it compiles.
    template = template.replace("'a'", "messages[0].role[:1]")
    renders = made(f"{{% if messages | length > 1 %}}{template}{{% endif %}}{SHOWING}")
    body = {"messages": [said("user", "Hi"), said("user", "again")]}
    with pytest.raises(OverLimit) as caught:
        renders.render(body)
    assert message in str(caught.value)
    assert "with this conversation" in str(caught.value)
    begun = time.monotonic()
    with pytest.raises(OverLimit):
        renders.outcome(body)
    assert time.monotonic() - begun < 1
    assert renders.render(ASKED).text == "[user:Hi|]go"


def test_template_sees_no_variable_of_the_environment(
    made: Made,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "letmein-env")
    starters.shared().close()
    assert made().render(ASKED).text == "[user:Hi|]go"
    pid = starters.shared().get().pid
    for process in (pid, *children(pid)):
        with open(f"/proc/{process}/environ", "rb") as file:  # noqa: PTH123
            assert b"letmein" not in file.read()


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
        return [int(word) for word in file.read().split()]


def test_renderers_share_one_starter_and_end_with_it(made: Made) -> None:  # noqa: F811
    first, second = made(), made()
    starter = starters.shared().get()
    forked = children(starter.pid)
    assert len(forked) >= 2
    first.close()
    assert len(children(starter.pid)) == len(forked) - 1
    assert second.render(ASKED).text == "[user:Hi|]go"
    starters.shared().close()
    until(lambda: not any(alive(pid) for pid in (starter.pid, *forked)))


def test_worker_that_was_killed_is_replaced(made: Made) -> None:  # noqa: F811
    renders = made()
    os.kill(renders._worker._forked[-1].pid, 11)
    with pytest.raises(OverLimit, match=r"ended its process \(SIGSEGV\): it needs more than"):
        renders.render(ASKED)
    body: dict[str, Any] = {"messages": [said("user", "Hello")]}
    assert renders.render(body).text == "[user:Hello|]go"


def test_starter_that_was_killed_is_replaced(made: Made) -> None:  # noqa: F811
    renders = made()
    pid = renders._worker._forked[-1].pid
    os.kill(starters.shared().get().pid, 9)
    until(lambda: not alive(pid), "the worker outlived its starter")
    with pytest.raises(OverLimit, match="ended its process"):
        renders.render(ASKED)
    body: dict[str, Any] = {"messages": [said("user", "Hello")]}
    assert renders.render(body).text == "[user:Hello|]go"


def test_code_of_the_checkpoint_is_never_run(made: Made, folder: Path) -> None:  # noqa: F811
    (folder / "evil.py").write_text(f"open({str(folder / 'was-run')!r}, 'w')\nclass Evil: ...\n")
    (folder / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "tokenizer_class": "Evil"}'
    )
    with pytest.raises(UserError, match="custom code"):
        made()
    assert not (folder / "was-run").exists()


def test_many_long_prompts_are_not_all_kept(
    made: Made,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_vllm_gates.prompts.reference.KEPT_CHARACTERS", 100)
    renders = made()
    for number in range(9):
        renders.render({"messages": [said("user", f"{number}" * 40)]})
    assert len(renders._rendered) <= 2


def test_refusal_is_not_a_finding(made: Made) -> None:  # noqa: F811
    outcome = made().outcome({"messages": [said("user", "Hi"), said("system", "late")]})
    assert isinstance(outcome, Refused)


@pytest.fixture(autouse=True, scope="module")
def _end() -> Iterator[None]:
    yield
    starters.shared().close()
