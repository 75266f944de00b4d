"""What decides: goldens, agreement of answers, sense of an answer, the verdict."""
