"""The page that shows both sides of a shadow live."""
