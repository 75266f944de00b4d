"""The contracts gate: routes, metrics, fields and errors that clients rely on."""
