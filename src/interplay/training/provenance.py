"""What a run was made with: command line, commit, versions of packages, hardware. `run.json` keeps it.

The commit and the versions are those of the code that this process imported, so they are found once per process.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from interplay.errors import without_passwords

_PACKAGES = ("interplay", "torch", "transformers", "tokenizers", "safetensors", "pydantic", "numpy")


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def commit(folder: Path | None = None) -> str | None:
    """The commit of the checkout that Interplay was imported from, with `+changes` if files differ from it; None for an
    installed package."""
    at = folder or Path(__file__).parent
    try:
        head = _git(at, "rev-parse", "HEAD")
        tracked = _git(at, "ls-files", "--error-unmatch", "provenance.py" if folder is None else ".")
        return f"{head}{'+changes' if _git(at, 'status', '--porcelain', '-uno') else ''}" if tracked else None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *command: str) -> str:
    done = subprocess.run(
        ["git", *command], cwd=folder, capture_output=True, text=True, check=True, timeout=10, stdin=subprocess.DEVNULL
    )
    return done.stdout.strip()


def command() -> list[str]:
    """The command line, without passwords that are part of a URL."""
    return [without_passwords(part) for part in sys.argv]


def hardware() -> dict[str, Any]:
    """Processor, cores, memory and GPUs."""
    found: dict[str, Any] = {"processor": _processor(), "cores": os.cpu_count()}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found["memory_gib"] = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found["cuda"] = torch.version.cuda
    return found


@cache
def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return named.group(1) if named else platform.processor() or platform.machine()


def session() -> dict[str, Any]:
    """One start of a run: a run that is resumed has several."""
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"began": began, "command": command(), "commit": _own(), "hardware": hardware(), "versions": versions()}


@cache
def _own() -> str | None:
    return commit()
