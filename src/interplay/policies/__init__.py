"""Who holds the weights, and who sits where."""
