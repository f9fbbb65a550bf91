"""Questions with a mathematical answer: a module for each team, and `math.py`, which picks one."""
