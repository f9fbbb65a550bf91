"""Tests Verilog designs and test benches by simulating them with Icarus Verilog in the sandbox.

A bench compares a design with a reference and prints `Mismatches: N in M samples`. `rewards/design.py` refuses designs
that could reach the reference or the count. A bench that a model wrote needs no such rule. It prints PASS or FAIL for a
design, and it is judged by whether it prints PASS for the right design and FAIL for designs with a planted bug.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import lru_cache

from interplay.errors import SandboxError
from interplay.execution.sandbox import Isolation, Job, Limits, RunResult, shared

LONGEST = 20_000
PACKAGE = "iverilog"
LIMITS = Limits(seconds=60, cpu_seconds=10, memory_mb=512, files_mb=16, output_kb=256)  # for one simulation
_COUNT = re.compile(r"^Mismatches: (\d+) in (\d+) samples$", re.MULTILINE)


@dataclass(frozen=True)
class Simulation:
    """The result of a design: the number of mismatches and of samples, if it could be simulated."""

    built: bool
    mismatches: int | None = None
    samples: int = 0
    trouble: str = ""

    @property
    def passed(self) -> bool:
        return self.mismatches == 0 and self.samples > 0


@lru_cache(maxsize=8192)
def simulated(design: str, reference: str, bench: str, isolation: Isolation) -> Simulation:
    """Compare a design with a reference, with the data set's own bench. The design must be known to be harmless."""
    quiet = re.sub(r"\$dump\w+\s*(?:\([^;]*\))?\s*;", ";", bench)
    result = _simulate({"top.sv": design, "reference.sv": reference, "bench.sv": quiet}, isolation)
    if result.code == 3:
        return Simulation(False, trouble=result.stderr.strip()[:300])
    counted = _COUNT.findall(result.stdout)
    if not result.ok or len(counted) != 1:
        return Simulation(True, trouble=f"the simulation ended with {result.status}")
    mismatches, samples = map(int, counted[0])
    return Simulation(True, mismatches, samples, f"{mismatches} of {samples} samples differ" if mismatches else "")


@lru_cache(maxsize=8192)
def judged(bench: str, design: str, isolation: Isolation) -> bool | None:
    """What a bench says about a design: True for PASS, False for FAIL, None if it says neither."""
    if not 0 < len(bench.strip()) <= LONGEST or not re.search(r"\bmodule\s+tb\b", bench):
        return None
    result = _simulate({"top.sv": design, "bench.sv": bench}, isolation)
    words = set(result.stdout.split()) if result.ok else set()
    return False if "FAIL" in words else True if "PASS" in words else None


def _simulate(files: dict[str, str], isolation: Isolation) -> RunResult:
    if shutil.which(PACKAGE, path="/usr/bin:/bin") is None:
        raise SandboxError(
            f"Icarus Verilog is not installed in /usr/bin; install the package {PACKAGE} (apt install {PACKAGE})."
        )
    sources = " ".join(sorted(files))
    script = f"iverilog -g2012 -s tb -o sim {sources} 1>&2 || exit 3\nexec vvp -n sim"
    return shared(isolation).run(Job(argv=("sh", "-c", script), files=files, limits=LIMITS))
