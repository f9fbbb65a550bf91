"""Tasks with outcomes that can be verified."""
