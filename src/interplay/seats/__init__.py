"""Who sits where: the occupants of an environment's roles, and the plan of a run."""
