"""PROMOTE, REJECT or HOLD, with the next steps and the comparison of two lanes."""
