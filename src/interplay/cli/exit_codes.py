"""Exit codes of the command line besides 0, 1 and 2, which `main.py` describes."""

STOPPED = 75  # a signal ended it early, and it can go on: EX_TEMPFAIL of sysexits.h
