"""One file a gate: `test_<gate>.py`. Its docstring's first line is what `pytest --markers` says."""
