"""The Dockerfile names files and extras that exist. (Building it needs a network and a daemon, and is not tested.)"""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_dockerfile_copies_files_that_exist_and_installs_extras_that_exist() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    ignored = set((ROOT / ".dockerignore").read_text(encoding="utf-8").split())
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / s).exists() and s not in ignored for s in sources), line
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert re.search(r'ENTRYPOINT \["(\w+)"\]', text)[1] in project["scripts"]  # type: ignore[index]


def test_what_git_ignores_is_not_sent_to_the_builder() -> None:
    """Environments, run folders and data are large, and an old build folder would get into the image."""
    known = [p.removeprefix("**/") for p in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()]
    ignored = [p.strip("/") for p in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    assert [name for name in ignored if not any(fnmatch(name, pattern) for pattern in known)] == []
