"""What people and programs read: the terminal's summary and `verdict.json`."""
