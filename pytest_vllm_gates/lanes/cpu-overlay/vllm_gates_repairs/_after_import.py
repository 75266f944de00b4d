"""Runs functions once, right after a named module was imported; costs nothing before that."""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hook:
    """A finder that watches for one module and removes itself once that was imported."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acts: list[Callable[[ModuleType], None]] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the watched module as the other finders do, and follow its execution."""
        if fullname != self.name:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        # A spec may be looked up without an import (find_spec), so the hook stays until it ran.
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if loader is None or execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                for act in self.acts:
                    act(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call `act(module)` once the module `name` is imported; at once if it already is."""
    if name in sys.modules:
        act(sys.modules[name])
        return
    # One finder per module: each calls the others, and two of a name would recurse for ever.
    hook = next(
        (each for each in sys.meta_path if isinstance(each, _Hook) and each.name == name), None
    )
    if hook is None:
        hook = _Hook(name)
        sys.meta_path.insert(0, hook)
    hook.acts.append(act)
