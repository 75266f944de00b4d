"""The same conversation in every API that a server offers."""
