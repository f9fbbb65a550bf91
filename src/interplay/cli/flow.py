"""How well the processes of a run were used: means of its metrics about staleness, idle time and weight updates."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from interplay.rollout.records import metric_rows

_ABOUT = re.compile(r"stream/(staleness|masked|idle|age/\d+)|cluster/.+|[^/]+/(stale_kl|update_seconds(_per_gb)?)")
_TOTALS = ("cluster/workers_lost", "cluster/engines_lost")  # counted since the processes were started


def flow(metrics: Path) -> dict[str, float]:
    """The means over all training steps, and totals of what was lost, by the names of the metrics. Lines that are
    damaged are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in metric_rows(metrics):
        for name, value in row.items():
            if _ABOUT.fullmatch(name):
                found[name].append(value)
    return {name: values[-1] if name in _TOTALS else fmean(values) for name, values in sorted(found.items())}
