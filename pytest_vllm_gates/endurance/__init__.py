"""The endurance gate: asked for hours, a server answers as it did at first."""
