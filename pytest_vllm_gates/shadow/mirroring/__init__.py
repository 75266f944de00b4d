"""What nobody waits for: copies sent to the canary, pairs judged, controllers answered."""
