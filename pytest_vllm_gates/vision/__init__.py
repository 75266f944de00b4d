"""Pictures that the gates draw and send, and a seeing model's answers to them."""
