"""The store that a team shares: goldens, baselines, incidents, histories and verdicts."""
