"""Games whose rules are written here, without another package."""
