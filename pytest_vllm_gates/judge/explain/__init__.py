"""Parts of `explain` that are not moved yet."""
