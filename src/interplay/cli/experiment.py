"""`interplay experiment`: train and test the arms and seeds of some studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from interplay.errors import ConfigError


def experiment(console: Console, given: Sequence[str], out: Path, jobs: int, seeds: int | None) -> None:
    """Run the studies one after another; what is done already is not done again."""
    from interplay.cli.quiet import quiet_libraries
    from interplay.publishing.arena import play_arena
    from interplay.publishing.experiment import run_study
    from interplay.publishing.results import Results, holm

    quiet_libraries()
    files = [Path(text) for text in given if text.endswith(".toml")]
    changes = [text for text in given if not text.endswith(".toml")]
    if not files:
        raise ConfigError("no study is named; expected files such as recipes/rlhf/experiment/story.toml.")
    tell = lambda line: console.print(line, highlight=False, soft_wrap=True)  # noqa: E731
    found = []
    for file in files:
        study = run_study(file, out, changes, jobs, tell, seeds)
        play_arena(study, out / study.section.name, tell)
        found.append(Results.read(out / study.section.name))
    for contrast in holm([c for results in found for c in results.contrasts()]):
        gap = contrast.difference
        console.print(
            f"{contrast.study}: {contrast.sentence} ({contrast.measure} {gap.value:+.3f} [{gap.low:+.3f}, "
            f"{gap.high:+.3f}], {contrast.seeds} seeds, p {contrast.p:.3g}, after Holm {contrast.corrected:.3g})",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    console.print(f"everything is in {out}; next: interplay publish {out}", highlight=False, soft_wrap=True)
