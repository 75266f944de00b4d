"""The one error for mistakes a person can mend: bad option, bad file, bad name."""


class UserError(Exception):
    """A mistake in what was given. Its text names the value, the likely cause and the next step."""
