"""Exit codes of the command line that several files use. `main.py` describes all of them."""

FAILED = 1
STOPPED = 75  # a signal ended it early, and it can go on: EX_TEMPFAIL of sysexits.h
