"""Work with verifiable outcomes."""
