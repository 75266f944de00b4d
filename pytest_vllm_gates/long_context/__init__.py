"""The long-context gate: prompts of every planned length, and how they are judged."""
