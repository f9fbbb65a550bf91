"""Questions with a mathematical answer: one module for each team, and `math.py`, which chooses one."""
