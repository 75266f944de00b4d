"""Print the option strings of the installed pytest plugins as `plugin_options.toml` has them.

    python -m venv /tmp/plugins && /tmp/plugins/bin/pip install pytest pytest-cov pytest-xdist …
    /tmp/plugins/bin/python tests/data/read_plugin_options.py > tests/data/plugin_options.toml

The plugins of each distribution declare their options to a separate parser.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from importlib.metadata import EntryPoint, distributions

import pytest


def declared(entry: EntryPoint) -> set[str]:
    """Return the option strings that one plugin declares."""
    plugin = entry.load()
    hook = getattr(plugin, "pytest_addoption", None)
    if hook is None:
        return set()
    parser = pytest.Parser(_ispytest=True)
    manager = pytest.PytestPluginManager()
    known = {"parser": parser, "pluginmanager": manager}
    hook(**{name: known[name] for name in inspect.signature(hook).parameters})
    groups = [*parser._groups, parser._anonymous]
    return {name for group in groups for option in group.options for name in option.names()}


def main() -> None:
    """Print one table a distribution, in order of names."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for distribution in distributions():
        name = distribution.metadata["Name"]
        for entry in distribution.entry_points:
            if entry.group == "pytest11" and name != "pytest-vllm-gates":
                found[name, distribution.version] |= declared(entry)
    print("# Option strings of widely installed pytest plugins.")
    print(f"# Read by tests/data/read_plugin_options.py with pytest {pytest.__version__}.")
    for (name, version), options in sorted(found.items()):
        print(f'\n[[plugin]]\nname = "{name}"\nversion = "{version}"')
        print(f"options = {sorted(options)}".replace("'", '"'))


if __name__ == "__main__":
    main()
