"""Options are read once, and a mistake ends with exit status 4 and one clean line."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.load.types import Workers
from pytest_vllm_gates.options import defaults, kinds, read, record, spelling, table
from pytest_vllm_gates.options.__main__ import markdown
from pytest_vllm_gates.options.record import ALWAYS, options_of

if TYPE_CHECKING:
    from conftest import Project

USAGE_ERROR = pytest.ExitCode.USAGE_ERROR


def refused(project: Project, *arguments: str) -> str:
    """Return what a person reads when pytest refuses its arguments."""
    result = project.pytest(*arguments)
    assert result.ret == USAGE_ERROR
    told = result.stderr.str()
    assert told.startswith("ERROR: ")
    assert "Traceback" not in told + result.stdout.str()
    assert "test session starts" not in result.stdout.str()
    return told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--model qwne3.5", "unknown family 'qwne3.5'; did you mean 'qwen3.5'?\nknown: "),
        ("--model qwen3.5,xyzzy", "unknown family 'xyzzy'\nknown: "),
        ("--model ,", "--model needs the name of a family: pytest --model NAME"),
        (
            "--model qwen3.5 --lane fke",
            "unknown lane 'fke'; did you mean 'fake'?\nknown: cpu, cpu-previous, cpu-tp2, cuda, ",
        ),
        (
            "--model qwen3.5 --lane fake --checkpoint minature",
            "unknown checkpoint 'minature' of qwen3.5; did you mean 'miniature'?\nknown: ",
        ),
        (
            "--model qwen3.5 --lane fake --base-url http://127.0.0.1:8000/v1",
            "--base-url judges a running server and --lane boots one: give only one of them",
        ),
        (
            "--model qwen3.5 --lane fake --against fke",
            "unknown lane 'fke'; did you mean 'fake'?\nknown: cpu, cpu-previous, cpu-tp2, cuda, ",
        ),
        (
            "--model qwen3.5 --against fake --base-url http://127.0.0.1:8000/v1",
            "--against compares two lanes, and --base-url does not name a lane: make a lane",
        ),
        ("--model qwen3.5 --base-url localhost:8000", "8000/v1, got 'localhost:8000'"),
        ("--model qwen3.5 --base-url http://", "--base-url: expected a URL like http://127.0.0.1"),
        ("--model qwen3.5 --base-url http://host:port/v1", ", got 'http://host:port/v1'"),
        (
            "--model qwen3.5 --redact-prompts some",
            "--redact-prompts: expected one of keep, hash, drop, got 'some'",
        ),
        (
            "--model qwen3.5 --base-url http://me:letmein@host:port/v1",
            ", got 'http://[redacted]@host:port/v1'",
        ),
        ("--model qwen3.5 --answer-tokens 0", "--answer-tokens: expected an integer >= 1, got '0'"),
        ("--model qwen3.5 --samples -1", "--samples: expected an integer >= 0, got '-1'"),
        *(
            (f"--model qwen3.5 --soak {value}", f"at least 30s (90s, 30m, 2h), got '{value}'")
            for value in ("5s", "long", "1d", "nan", "infm")
        ),
        *(
            (f"--model qwen3.5 --load-workers {value}", f"a number of workers, got '{value}': ")
            for value in ("two", "-1", "0@host:5557", "2@host:port", "2@:5557", "2@")
        ),
        (
            "--model qwen3.5 --load-workers 2@127.0.0.1:5557",
            "$GATES_LOAD_SECRET, which has 0 characters and needs at least 16: export",
        ),
        ("--model qwen3.5 --samples many", "--samples: expected an integer >= 0, got 'many'"),
        (
            "--model qwen3.5 --api-key-env NO_SUCH_KEY",
            "--api-key-env names the variable 'NO_SUCH_KEY', which is not set: export NO_SUCH_KEY=",
        ),
        *(
            (
                f"--model qwen3.5 --{name}-timeout {value}",
                f"--{name}-timeout: expected a number of seconds above zero, got '{value}'",
            )
            for name, value in [
                ("boot", "soon"), ("boot", "0"), ("boot", "-3"), ("stall", "nan"), ("stall", "inf"),
            ]
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_what_was_probably_meant(
    project: Project, arguments: str, told: str
) -> None:
    assert told in refused(project, *arguments.split())


def test_load_workers_need_locust(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def workers(value: str) -> Workers:
        given = kinds.Given("--load-workers", value, typed=True, config=pytestconfig)
        found: Workers = kinds.WORKERS.read(given)
        return found

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(pytest.UsageError, match=r"pip install 'pytest-vllm-gates\[load-workers\]'"):
        workers("2")
    assert workers("0").count == 0


def test_spreading_one_machine_over_workers_is_refused(project: Project) -> None:
    told = refused(project, "--model", "qwen3.5", "--lane", "fake", "-n", "2")
    assert "-n 2 would boot 2 servers at once" in told
    assert "leave -n out" in told


def test_a_typo_in_a_lane_is_reported_with_its_line(project: Project) -> None:
    project.write("lanes/fake.toml", 'title = "x"\ncommand = ["run"]\ncomand = 1\n')
    told = refused(project, "--model", "qwen3.5", "--lane", "fake")
    path = project.path / "lanes" / "fake.toml"
    assert told.strip() == f"ERROR: {path}:3: unknown key 'comand'; did you mean 'command'?"


def test_a_typo_in_a_conversation_is_reported(project: Project) -> None:
    path = project.write("conversations/mine.toml", 'tile = "x"\n')
    told = refused(project, "--model", "qwen3.5", "--lane", "fake")
    assert f"{path}:1: unknown key 'tile'; did you mean 'title'?" in told


def test_a_report_that_cannot_be_a_folder_is_refused(project: Project) -> None:
    project.write("out", "a file")
    told = refused(project, "--model", "qwen3.5", "--lane", "fake", "--gates-report", "out")
    assert "--gates-report 'out' is a file: name a folder" in told


TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "--load-trace {path}: does not exist\nname a trace: --load-trace FILE"),
        ("", "{path}: the trace is empty"),
        ("hello\n", "{path}:1: found 'hello'; expected the first line of a trace (Azure LLM"),
        (f"{TRACE}now,1,2\n", "{path}:2: found TIMESTAMP 'now'; expected a time such as"),
        (
            f"{TRACE}2024-05-10 00:00:00,1,2\n2024-05-10 00:01:00,1,2\n",
            "replay it faster: trace_speed = 3 or more under [load]",
        ),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_reported_before_anything_boots(
    project: Project, text: str | None, told: str
) -> None:
    path = project.path / "a.csv" if text is None else project.write("a.csv", text)
    says = refused(project, "--model", "qwen3.5", "--lane", "fake", "--load-trace", "a.csv")
    assert told.format(path=path) in says


def test_pytests_own_trace_is_left_alone(project: Project) -> None:
    assert project.pytester.parseconfig("--trace").getoption("trace") is True


def test_a_trace_in_the_settings_lies_beside_them(project: Project) -> None:
    project.pytester.makeini("[pytest]\ngates_load_trace = traces/a.csv\n")
    elsewhere = project.pytester.mkdir("elsewhere")
    project.pytester.chdir()
    found = parsed(project, "--model", "a", "-c", str(project.path / "tox.ini"), str(elsewhere))
    assert found.trace == project.path / "traces" / "a.csv"
    assert parsed(project, "--model", "a", "--load-trace", "b.csv").trace == project.path / "b.csv"


def test_names_may_be_spelled_freely(project: Project) -> None:
    result = project.pytest("--model", "Qwen-3.5", "--lane", "FAKE", "--collect-only", "-q")
    assert result.ret == 0
    assert "gates/test_boot.py::test_boots[qwen3.5]" in result.outlines


def parsed(project: Project, *arguments: str) -> table.Options:
    config = project.pytester.parseconfig(*arguments)
    found = read.parse(config)
    assert found is not None
    return found


EVERY = {
    "checkpoint": "miniature",
    "lane": "fake",
    "against": "fake",
    "pairs": "12",
    "update-golden": None,
    "update-baseline": None,
    "gates-report": "out",
    "gates-history": "kept.sqlite",
    "boot-timeout": "12.5",
    "soak": "30m",
    "load-workers": "2",
    "load-trace": "trace.csv",
    "ramp": None,
    "redact-prompts": "hash",
    "stall-timeout": "3",
    "max-response-mib": "5",
    "response-timeout": "60",
    "no-overlay": None,
    "without-repair": "a_repair",
    "require-promotion": None,
    "answer-tokens": "4096",
    "samples": "0",
    "api-key-env": "A_KEY",
    "keep-server": "5m",
}


def test_every_option_has_a_setting(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    flags = [part for flag, value in EVERY.items() for part in (f"--{flag}", value) if part]
    by_flag = parsed(project, "--model", "a,b", "--model", "c", *flags)
    settings = "\n".join(
        f"gates_{flag.replace('gates-', '').replace('-', '_')} = {value or 'true'}"
        for flag, value in EVERY.items()
    )
    project.pytester.makeini(f"[pytest]\ngates_model = a,b c\n{settings}\n")
    assert parsed(project, "--strict-config") == by_flag
    assert by_flag == table.Options(
        models=("a", "b", "c"),
        checkpoint="miniature",
        lane="fake",
        against="fake",
        pairs=12,
        base_url=None,
        api_key_env="A_KEY",
        update_golden=True,
        update_baseline=True,
        report_dir=project.path / "out",
        history=project.path / "kept.sqlite",
        keep_history=True,
        boot_timeout_s=12.5,
        stall_timeout_s=3.0,
        max_response_mib=5,
        response_timeout_s=60.0,
        overlay=False,
        without_repairs=("a_repair",),
        answer_tokens=4096,
        samples=0,
        soak_s=1800.0,
        load_workers=Workers(2),
        trace=project.path / "trace.csv",
        ramp=True,
        keep_server_s=0.0,  # a server that is measured against another, or recorded, is not kept
        require_promotion=True,
        repro=None,
        times=1,
        incidents=True,
        redact_prompts="hash",
        rootdir=project.path,
        verbose=False,
    )


def test_no_option_is_ignored_without_a_model(project: Project) -> None:
    told = project.pytest("--help").stdout.str()
    ours = told[told.index("vLLM gates (inert") :].partition("\n\n")[0]
    shown = re.findall(r"^  (--[a-z-]+)", ours, re.MULTILINE)
    assert shown == [option.name for option in options_of(table.Options)]
    for option in options_of(table.Options):
        for name in {option.name, option.long}:
            if option.name in {"--model", "--repro"}:
                continue
            config = project.pytester.parseconfig(
                name if option.kind.ini == "bool" else f"{name}=2"
            )
            needed = "repro" if option.name == "--times" else "model"
            with pytest.raises(
                pytest.UsageError, match=f"^{option.name} needs --{needed}: pytest --"
            ):
                read.parse(config)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("--keep-server", 900), ("--keep-server=90s", 90), ("--keep-server=2h", 7200), ("-v", 0)],
)
def test_a_server_is_kept_for_the_given_time(project: Project, given: str, seconds: float) -> None:
    found = parsed(project, "--model", "a", given)
    assert found
    assert found.keep_server_s == seconds


def test_the_defaults_request_little(project: Project) -> None:
    assert parsed(project, "--model", "a") == table.Options(
        models=("a",),
        checkpoint=None,
        lane=None,
        against=None,
        pairs=None,
        base_url=None,
        api_key_env="OPENAI_API_KEY",
        update_golden=False,
        update_baseline=False,
        report_dir=None,
        history=project.path / ".vllm-gates" / "history.sqlite",
        keep_history=True,
        boot_timeout_s=defaults.BOOT_TIMEOUT_S,
        stall_timeout_s=defaults.STALL_TIMEOUT_S,
        max_response_mib=defaults.MAX_RESPONSE_MIB,
        response_timeout_s=defaults.RESPONSE_TIMEOUT_S,
        overlay=True,
        without_repairs=(),
        answer_tokens=defaults.ANSWER_TOKENS,
        samples=defaults.SAMPLES,
        soak_s=0.0,
        load_workers=Workers(),
        trace=None,
        ramp=False,
        keep_server_s=0.0,
        require_promotion=False,
        repro=None,
        times=1,
        incidents=True,
        redact_prompts="keep",
        rootdir=project.path,
        verbose=False,
    )


def test_workers_of_other_machines_know_a_secret(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATES_LOAD_SECRET", "0123456789abcdef")
    workers = parsed(project, "--model", "a", "--load-workers", "3@10.0.0.1:5557").load_workers
    assert workers == Workers(3, "10.0.0.1:5557", "0123456789abcdef")
    assert "0123456789" not in repr(workers)


def test_the_command_line_overrides_the_settings(project: Project) -> None:
    project.pytester.makeini("[pytest]\ngates_lane = cuda\ngates_boot_timeout = 9\n")
    found = parsed(project, "--model", "a", "--lane", "fake")
    assert (found.lane, found.boot_timeout_s) == ("fake", 9.0)


def test_a_model_named_twice_is_one(project: Project) -> None:
    assert parsed(project, "--model", "a, b", "--model", "a").models == ("a", "b")


def test_help_names_every_option_with_its_setting(project: Project) -> None:
    result = project.pytest("--help")
    assert result.ret == 0
    told = result.stdout.str()
    assert "vLLM gates (inert without --model):" in told
    for flag in ("model", "base-url", *EVERY):
        assert f"--{flag}" in told
        assert f"gates_{flag.removeprefix('gates-').replace('-', '_')} (" in told


@pytest.mark.parametrize("arguments", [(), ("--model", "qwen3.5", "--lane", "fake")])
def test_markers_name_every_gate_in_its_own_words(
    project: Project, arguments: tuple[str, ...]
) -> None:
    result = project.pytest("--markers", *arguments)
    assert result.ret == 0
    told = result.stdout.str()
    assert "@pytest.mark.words: What is said is what was recorded." in told
    assert "@pytest.mark.boot: The server boots, answers sensibly" in told
    assert "@pytest.mark.ends_the_server: " in told


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoreOptions(table.Options):
    """The table with one option more."""

    paint: str | None = record.option(
        "--paint", kinds.TEXT, "Paints the verdict.", metavar="COLOUR", repeat=ALWAYS
    )


@pytest.fixture
def more_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "Options", MoreOptions)


@pytest.mark.usefixtures("more_options")
def test_option_added_to_the_table_is_seen_everywhere(project: Project) -> None:
    shown = project.pytest("--help").outlines
    assert any("--paint=COLOUR, --gates-paint=COLOUR" in line for line in shown)
    assert any(line.strip().startswith("gates_paint (string):") for line in shown)
    typed = parsed(project, "--model", "qwen3.5", "--gates-paint", "red")
    assert isinstance(typed, MoreOptions)
    assert typed.paint == "red"
    assert list(spelling.repeated(typed, "boot"))[-2:] == ["--paint", "red"]
    project.pytester.makeini("[pytest]\ngates_model = qwen3.5\ngates_paint = blue\n")
    from_settings = parsed(project)
    assert isinstance(from_settings, MoreOptions)
    assert from_settings.paint == "blue"
    row = "| `--paint COLOUR` | `--gates-paint` | `gates_paint` | Paints the verdict. |"
    assert row in markdown(options_of(MoreOptions))
    project.pytester.makeini("[pytest]\n")
    assert "--paint needs --model: pytest --model NAME --paint ..." in refused(
        project, "--paint", "red"
    )


def test_options_cannot_be_changed(project: Project) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parsed(project, "--model", "a").lane = "b"  # type: ignore[misc]
