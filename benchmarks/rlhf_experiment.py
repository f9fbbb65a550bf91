"""Runs the RLHF experiment on a machine that is available only for minutes: `python benchmarks/rlhf_experiment.py
--jobs 14 --seconds 480 --pack FILE.tar.gz`, and again with `--unpack FILE.tar.gz` until it prints "0 runs left".

It does what `interplay experiment recipes/rlhf/experiment/*.toml` does. The packed file has what the pages and the rest
of the experiment need: the results and metrics of every finished run, and weights that an arena still has to play with.
A run that the time limit stopped is left out and starts again in the next call.
"""

from __future__ import annotations

import argparse
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

STUDIES = Path(__file__).parents[1] / "recipes" / "rlhf" / "experiment"
KEPT = ("test.json", "metrics.jsonl", "run.json", "recipe.toml")


def packed(out: Path, study: object) -> Iterator[Path]:
    """The files of a study that are needed after this call."""
    from interplay.publishing.arena import context_of
    from interplay.publishing.experiment import TESTED, newest
    from interplay.publishing.study import Study

    assert isinstance(study, Study)
    folder = out / study.section.name
    yield folder / "study.json"
    yield from sorted((folder / "arena").glob("*.json"))
    arena = folder / "arena"
    for arm, seed in study.runs:
        run = folder / arm / f"seed-{seed}"
        if not (run / TESTED).is_file():
            continue
        yield from (run / name for name in KEPT if (run / name).is_file())
        crossed = context_of(study, arm) is None or any(arena.glob(f"cross-{arm}-*.json"))
        if study.section.arena is not None and not (crossed and (arena / f"seed-{seed}.json").is_file()):
            yield from (p for p in sorted((newest(run) / "policies").rglob("*")) if p.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "studies",
        nargs="*",
        type=Path,
        default=sorted(STUDIES.glob("*.toml")),
        help="files of studies; default: those of the published experiment",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/experiment"), help="folder of the run folders")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many runs work side by side")
    parser.add_argument("--seconds", type=float, default=480.0, help="stop after this many seconds")
    parser.add_argument("--seeds", type=int, default=None, help="use only this many seeds of each study")
    parser.add_argument("--changes", nargs="*", default=[], help="changes to the recipe of every arm: a.b=c")
    parser.add_argument("--unpack", type=Path, default=None, help="read what an earlier call has packed")
    parser.add_argument("--pack", type=Path, default=None, help="write what the next call needs to this file")
    args = parser.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    from interplay.publishing.agenda import ExperimentPace, run_studies
    from interplay.publishing.experiment import TESTED

    began = time.monotonic()
    if args.unpack is not None and args.unpack.is_file():
        with tarfile.open(args.unpack) as tar:
            tar.extractall(args.out, filter="data")
    tell = lambda line: print(f"{time.monotonic() - began:.0f} s: {line}", flush=True)  # noqa: E731
    pace = ExperimentPace(args.jobs, args.seconds, go_on=True)
    studies = run_studies(args.studies, args.out, args.changes, args.seeds, pace, tell)
    left = sum(
        not (args.out / s.section.name / arm / f"seed-{seed}" / TESTED).is_file()
        for s in studies
        for arm, seed in s.runs
    )
    print(f"{left} runs left")
    if args.pack is not None:
        with tarfile.open(args.pack, "w:gz", compresslevel=6) as tar:
            for path in (p for s in studies for p in packed(args.out, s)):
                tar.add(path, str(path.relative_to(args.out)))
        print(f"{args.pack}: {args.pack.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
