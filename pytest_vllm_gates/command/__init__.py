"""Commands that are not moved yet."""
