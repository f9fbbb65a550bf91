"""Numbers and their sources. Every number on a page must first be registered here with its source; a page with any
other number is refused. So no number on a page is outdated or invented."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from interplay.errors import DataError
from interplay.evaluation.intervals import Estimate

_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?:e-?\d+)?")
_SEED = re.compile(r"seed-(\d+)")
_CODE = re.compile(r"`[^`]*`|```.*?```", re.DOTALL)


class Facts:
    def __init__(self) -> None:
        self.sources: dict[str, list[str]] = defaultdict(list)

    def say(self, value: float, form: str, *sources: Path | str) -> str:
        """Return a number as it is printed, and register it with its sources."""
        if isinstance(value, float) and not math.isfinite(value):
            return "n/a"
        text = format(value, form)
        for number in _NUMBER.findall(text):
            self.sources[number] += [str(s) for s in sources if str(s) not in self.sources[number]]
        return text

    def interval(self, found: Estimate, form: str, *sources: Path | str) -> str:
        """Return a mean and its interval. With only one seed, return the mean and say that it is one run."""
        value = self.say(found.value, form, *sources)
        if not math.isfinite(found.low):
            return f"{value} (one run)"
        return f"{value} [{self.say(found.low, form, *sources)}, {self.say(found.high, form, *sources)}]"

    def constant(self, text: str, why: str) -> str:
        """Register a number that was not measured by a run; `why` says what it is."""
        for number in _NUMBER.findall(text):
            self.sources[number].append(why)
        return text

    def check(self, text: str, page: str) -> None:
        """Refuse a page with a number that was not registered. Numbers in code are ignored."""
        strange = [n for n in _NUMBER.findall(_CODE.sub("", text)) if n not in self.sources]
        if strange:
            raise DataError(
                f"{page} has the number {strange[0]}, which cannot be traced to a run; expected every number to come "
                "from the folders that are published."
            )

    def write(self, path: Path, runs: Path) -> None:
        """Write every registered number and its sources. Files are named relative to `runs`, so that the same runs give
        the same file on every machine. Files that differ only by the seed are one line."""
        listed = {
            number: _together([source.removeprefix(f"{runs}/") for source in sources])
            for number, sources in sorted(self.sources.items())
        }
        path.write_text(json.dumps(listed, indent=1) + "\n")


def _together(sources: Sequence[str]) -> list[str]:
    """Return the sources with their seeds in braces, as in a shell.

    >>> _together(["a/seed-0/test.json", "a/seed-2/test.json", "b"])
    ['a/seed-{0,2}/test.json', 'b']
    """
    seeds: dict[tuple[str, str], list[str]] = {}
    for source in sources:
        start, found, end = (*_SEED.split(source, maxsplit=1), "", "")[:3]
        seeds.setdefault((start, end), []).append(found)
    return [
        f"{start}seed-{numbers[0] if len(numbers) == 1 else '{' + ','.join(numbers) + '}'}{end}"
        if numbers[0]
        else start
        for (start, end), numbers in seeds.items()
    ]
