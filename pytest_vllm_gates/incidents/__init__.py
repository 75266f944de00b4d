"""What a failed test leaves behind, and how it is sent again."""
