"""`interplay experiment`: train and test the arms and seeds of some studies."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from interplay.cli.exit_codes import STOPPED
from interplay.errors import ConfigError

if TYPE_CHECKING:
    from interplay.publishing.agenda import ExperimentPace
    from interplay.publishing.results import Contrast


def experiment(console: Console, given: Sequence[str], out: Path, seeds: int | None, pace: ExperimentPace) -> None:
    """Run the studies. Runs and tests that are already finished are not repeated."""
    from interplay.cli.quiet import quiet_libraries
    from interplay.publishing.agenda import run_studies
    from interplay.publishing.results import Results, holm, tested_runs
    from interplay.publishing.study import Study

    if pace.jobs == 1:  # else the runs are in other processes, and this one only waits for them
        quiet_libraries()
    files = [Path(text) for text in given if text.endswith(".toml")]
    changes = [text for text in given if not text.endswith(".toml")]
    if not files:
        raise ConfigError("no study is named; expected files such as recipes/rlhf/experiment/story.toml.")
    if seeds is not None and seeds > (most := max(len(Study.read(file, changes).section.seeds) for file in files)):
        raise ConfigError(f"--seeds has no effect above {most}, the most seeds of a study here; leave --seeds out.")
    tell = lambda line: console.print(line, highlight=False, soft_wrap=True)  # noqa: E731
    folders = [out / s.section.name for s in run_studies(files, out, changes, seeds, pace, tell)]
    if pace.interrupt.asked:
        tell(f"interrupted; finished work is kept in {out}, and the same command continues from there.")
        raise typer.Exit(STOPPED)
    found = [Results.read(folder) for folder in folders if tested_runs(folder)]
    for contrast in holm([c for results in found for c in results.contrasts()]):
        tell(in_a_line(contrast))
    tell(f"everything is in {out}; next: interplay publish {shlex.quote(str(out))}")


def in_a_line(contrast: Contrast) -> str:
    """A contrast for the terminal. With one seed there is no interval and no p-value."""
    gap = contrast.difference
    if contrast.seeds == 1:
        numbers = f"{gap.value:+.3f}, one seed"
    else:
        numbers = (
            f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}], {contrast.seeds} seeds, p {contrast.p:.3g}, "
            f"after Holm {contrast.corrected:.3g}"
        )
    return f"{contrast.study}: {contrast.sentence} ({contrast.measure} {numbers})"
