"""Without `--model` the plugin changes nothing of an ordinary pytest run."""

from __future__ import annotations

import json

import pytest

LOADED = """
import json, sys

def pytest_unconfigure(config):
    names = sorted({name for name in sys.modules if "." not in name})
    names += sorted(name for name in sys.modules if name.startswith("pytest_vllm_gates."))
    registered = [name for name, _ in config.pluginmanager.list_name_plugin() if "vllm" in name]
    print("\\nLOADED", json.dumps([names, registered]))
"""
HEAVY = {"torch", "transformers", "openai", "httpx2", "pydantic", "jinja2", "jsonschema"}


def test_nothing_is_registered_and_nothing_heavy_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LOADED)
    pytester.makepyfile("def test_x(): pass")
    result = pytester.runpytest_subprocess("-s")
    assert result.ret == 0
    (line,) = [line for line in result.outlines if line.startswith("LOADED")]
    names, registered = json.loads(line.removeprefix("LOADED"))
    assert not HEAVY & set(names)
    assert {name for name in names if name.startswith("pytest_vllm_gates.")} == {
        "pytest_vllm_gates.options",
        "pytest_vllm_gates.options.defaults",
        "pytest_vllm_gates.options.judging",
        "pytest_vllm_gates.options.kinds",
        "pytest_vllm_gates.options.names",
        "pytest_vllm_gates.options.read",
        "pytest_vllm_gates.options.record",
        "pytest_vllm_gates.options.serving",
        "pytest_vllm_gates.options.table",
        "pytest_vllm_gates.plugin",
    }
    assert registered == ["vllm_gates"]


def test_an_ordinary_run_looks_as_it_does_without_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_boot="""
        import pytest

        def test_passes(): pass
        def test_fails(): assert 0
        def test_server(server): pass  # no fixture of that name is there
        @pytest.mark.skip
        def test_skipped(): pass
        """
    )
    shown = []
    for arguments in ((), ("-p", "no:vllm_gates")):
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
        result.assert_outcomes(passed=1, failed=1, skipped=1, errors=1)
        assert result.ret == 1
        shown.append([line for line in result.outlines if "plugins:" not in line][:-1])
    assert shown[0] == shown[1]
    assert not any("vllm gates" in line for line in shown[0])


def test_a_projects_own_markers_and_options_stay(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    boot: ours\n")
    pytester.makepyfile("import pytest\n@pytest.mark.boot\ndef test_x(): pass")
    pytester.runpytest_inprocess("--strict-markers", "-m", "boot").assert_outcomes(passed=1)


def test_gates_are_not_collected_without_a_model(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--base-url", "http://127.0.0.1:8000/v1"),
        ("--update-golden", None),
        ("--lane", "cpu"),
        ("--checkpoint", "miniature"),
        ("--require-promotion", None),
        ("--gates-report", "out"),
        ("--no-overlay", None),
        ("--boot-timeout", "3"),
        ("--api-key-env", "HOME"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    pytester: pytest.Pytester, flag: str, value: str | None
) -> None:
    pytester.makepyfile("def test_x(): pass")
    result = pytester.runpytest_inprocess(flag, *([value] if value else []))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {flag} needs --model: pytest --model NAME {flag} ..."])


def test_settings_of_the_project_alone_start_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ngates_lane = cpu\ngates_require_promotion = true\n")
    pytester.makepyfile("def test_x(): pass")
    result = pytester.runpytest_inprocess("--strict-config")
    assert result.ret == 0
    assert "vllm gates" not in result.stdout.str()
