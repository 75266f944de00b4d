"""The error for mistakes that a user can correct: a bad option, file or name."""


class UserError(Exception):
    """A mistake in the input. Its text names the value, the likely cause and the next step."""
