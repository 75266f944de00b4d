"""One file a gate: `test_<gate>.py`. Its docstring's first line is shown by `pytest --markers`."""
