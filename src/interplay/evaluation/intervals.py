"""Confidence intervals: Wilson's for a share, the normal one for a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z95 = 1.959963984540054


def wilson(hits: int, total: int, z: float = Z95) -> tuple[float, float]:
    """The 95% interval of a share (Wilson, 1927): right also near 0 and 1, and for few trials."""
    if total == 0:
        return 0.0, 1.0
    p = hits / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean(values: Sequence[float], z: float = Z95) -> tuple[float, float, float]:
    """Mean and its 95% interval."""
    n = len(values)
    centre = math.fsum(values) / n
    if n < 2:
        return centre, -math.inf, math.inf
    deviation = math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (n - 1))
    half = z * deviation / math.sqrt(n)
    return centre, centre - half, centre + half
