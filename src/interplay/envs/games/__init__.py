"""Games with their rules written out here, no outside package."""
