"""Strategies and values of secrets for tests."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from pytest_vllm_gates.redaction.values import REDACTED, hides

OPENAI = "sk-proj-abcDEF0123456789abcdef"
# Values as people choose and programs make them; letters that every spelling writes otherwise too.
VALUES = st.text(string.ascii_letters + string.digits + "-_./+=@:'\"&<>% é", min_size=8).filter(
    lambda value: hides(value) and value == value.strip() and value not in REDACTED
)
