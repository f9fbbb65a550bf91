"""Who sits in a role."""
