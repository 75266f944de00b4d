"""What must hold of an answer, one topic a file."""
