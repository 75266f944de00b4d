"""One file a gate: `test_<gate>.py`. `pytest --markers` shows its docstring's first line."""
