"""Pictures that the gates draw and send, and what a model that sees answers to them."""
