"""The path of each API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.dialects import completions, messages, responses
from pytest_vllm_gates.dialects.types import CHAT, COMPLETIONS, MESSAGES, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Mapping

PATHS: Mapping[str, str] = {
    CHAT: "/v1/chat/completions", COMPLETIONS: completions.PATH, RESPONSES: responses.PATH,
    MESSAGES: messages.PATH,
}  # fmt: skip
