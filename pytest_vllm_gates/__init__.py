"""The regression gates a serving team runs before it trusts a vLLM upgrade."""

__version__ = "0.1.0"
