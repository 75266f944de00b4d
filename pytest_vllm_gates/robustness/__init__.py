"""The robustness gate: rare and wrong requests, which the server must survive."""
