"""Reports for people and programs: the terminal's summary, `verdict.json`, HTML, Markdown."""
