"""Play many episodes."""
