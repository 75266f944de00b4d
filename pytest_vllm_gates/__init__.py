"""The regression gates a serving team runs before it trusts a vLLM upgrade.

`__all__` is the public API: the names that a project's own gates import, including the types of
their fixtures. They are imported when they are first used, so that an inert plugin stays light.
Everything else in the package may change in any release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.answer import Answer, ToolCall, Usage
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.goldens import Refused, Rendering, settings_golden
    from pytest_vllm_gates.outcomes import (
        Blocked,
        Case,
        Finding,
        Inconclusive,
        Infrastructure,
        MissingBaseline,
        MissingGolden,
        NotApplicable,
        Outcome,
    )
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.launch import Launch

__version__ = "0.2.0"

__all__ = [
    "Answer",
    "Blocked",
    "Case",
    "Chat",
    "Checking",
    "Checkpoint",
    "Conversation",
    "Endpoint",
    "Evidence",
    "Family",
    "Finding",
    "Goldens",
    "Inconclusive",
    "Infrastructure",
    "Lane",
    "Launch",
    "MissingBaseline",
    "MissingGolden",
    "NotApplicable",
    "Outcome",
    "ReferenceRenderer",
    "Refused",
    "Rendering",
    "ToolCall",
    "Usage",
    "settings_golden",
]

_MODULES = {
    "Answer": "client.answer",
    "Blocked": "outcomes",
    "Case": "outcomes",
    "Chat": "client.chat",
    "Checking": "fixtures.checking",
    "Checkpoint": "catalog.checkpoint",
    "Conversation": "catalog.conversation",
    "Endpoint": "client.endpoint",
    "Evidence": "session.items",
    "Family": "catalog.family",
    "Finding": "outcomes",
    "Goldens": "session.golden_files",
    "Inconclusive": "outcomes",
    "Infrastructure": "outcomes",
    "Lane": "catalog.lane",
    "Launch": "session.launch",
    "MissingBaseline": "outcomes",
    "MissingGolden": "outcomes",
    "NotApplicable": "outcomes",
    "Outcome": "outcomes",
    "ReferenceRenderer": "prompts.reference",
    "Refused": "goldens",
    "Rendering": "goldens",
    "ToolCall": "client.answer",
    "Usage": "client.answer",
    "settings_golden": "goldens",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
