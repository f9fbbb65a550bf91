"""The paths of the machine that every program may read."""

from __future__ import annotations

import contextlib
import os
import sys

SYSTEM = ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/etc/ld.so.cache")
LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
LIBRARY = os.path.dirname(os.path.realpath(os.__file__))
PACKAGES = ("site-packages", "dist-packages")  # installed packages, which programs cannot read


def system_paths() -> list[str]:
    """The paths that every program may read: binaries, libraries, this interpreter and its standard library."""
    prefix, own = os.path.realpath(sys.base_prefix), [LIBRARY, os.path.realpath(sys.executable)]
    with contextlib.suppress(OSError):
        own += [f"{prefix}/lib/{n}" for n in sorted(os.listdir(f"{prefix}/lib")) if n.startswith("libpython")]
    paths = [p for p in SYSTEM if os.path.exists(p)]
    return paths + [p for p in own if not p.startswith(tuple(f"{s}/" for s in paths))]
