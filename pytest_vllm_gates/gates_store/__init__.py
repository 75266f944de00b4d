"""What a team shares: goldens, baselines, incidents, histories and verdicts, wherever they lie."""
