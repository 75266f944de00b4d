"""The pytest plugin: hooks that delegate to other modules. Inert without `--model`."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.options import names, read, table
from pytest_vllm_gates.options.record import options_of


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    options = options_of(table.Options)
    names.declare(parser, options)
    names.give_way(parser, pluginmanager, options)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    try:
        given = read.parse(config)
        names.release(config, options_of(table.Options))
        if given is None and not config.option.markers:
            return
        from pytest_vllm_gates import pytest_hooks  # noqa: PLC0415 - what is inert imports nothing

        pytest_hooks.declare_markers(config)
        if given is not None:
            config.pluginmanager.register(
                pytest_hooks.GatesSession(config, given), "vllm-gates-session"
            )
    except pytest.UsageError as error:
        from pytest_vllm_gates.session import redaction  # noqa: PLC0415

        raise redaction.usage_error(error) from None
