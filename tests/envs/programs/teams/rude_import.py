"""Does something when it is imported that harms whoever imports it, as the variable RUDE says."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from commands import talk

RUDE = os.environ.get("RUDE")
if RUDE == "hang":
    time.sleep(60)
elif RUDE == "close":
    os.close(0)
    os.close(1)
elif RUDE == "fork":
    os.fork()
elif RUDE == "ignore":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def run(row: dict[str, Any]) -> str:
    return talk()
