"""Compares training with a biased rater with the exact answer: `python benchmarks/filler.py [--seeds 5] [--jobs 16]`.

Every run trains on `filler` with a KL penalty of weight β towards the start (as a reward). All 256 replies are
enumerated with the learner's own log-probs before and after training, so the values of the best policy are known, and
the run is compared with them: the mean of n (filler signs), gold and KL, each as a mean over seeds. All runs start from
the same random weights, because the exact answer depends on the start; the seed changes what is sampled. From this
start, gold rises with the two larger β and falls again with the smallest, so the audit, which compares gold with the
rater's score during the run, should warn only with the smallest β. Runs are independent, one thread each. After
`--seconds` no run is begun; with `--out FILE` the next call does only what is left.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import fmean
from typing import Any

RECIPES = Path(__file__).parents[1] / "recipes" / "filler"


def run(job: tuple[str, float, int, tuple[str, ...]]) -> dict[str, Any]:
    """One training: the values of the best policy, those of the trained one, and whether the audit warned."""
    import torch
    from transformers.utils import logging

    from interplay.config import load
    from interplay.envs.dialogue.filler import measured, optimum
    from interplay.models.locate import locate
    from interplay.rewards.audit import Watch
    from interplay.rollout.resolve import resolve
    from interplay.training.trainer import Observer, Trainer

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    algorithm, beta, seed, changes = job
    base = load(RECIPES / f"{algorithm}.toml", list(changes)).policies["learner"].base
    start = f"policies.learner.base={locate(base, 0)}"
    recipe = load(RECIPES / f"{algorithm}.toml", [f"seed={seed}", f"algorithm.kl_reward={beta}", *changes, start])
    watch = Watch(drop=0.1, window=2)
    rang: list[int] = []

    def stepped(step: int, metrics: Any) -> None:
        if watch.see(metrics["reward/gold/writer"], metrics["reward/proxy/writer"]):
            rang.append(step)

    with tempfile.TemporaryDirectory() as folder:
        plan = resolve(recipe)
        trainer = Trainer(plan, Path(folder) / "run")
        trainer.observer = Observer(stepped=stepped)
        start = enumerated(trainer)
        trainer.train()
        end = enumerated(trainer)
        trainer.close()
    options = dict(plan.task(0).data)
    return {
        "algorithm": algorithm, "beta": beta, "seed": seed, "rang": rang[:1],
        "start": vars(measured(start, start, options)), "exact": vars(optimum(start, beta, options)),
        "run": vars(measured(end, start, options)),
    }  # fmt: skip


def in_time(job: tuple[str, float, int, tuple[str, ...]], until: float) -> dict[str, Any] | None:
    return run(job) if time.time() < until else None


def enumerated(trainer: Any) -> dict[str, float]:
    """The log-probability of every reply, by the learner."""
    from interplay import envs
    from interplay.training.tries import Example
    from interplay.types import Sample

    renderer = trainer.team.members["learner"].renderer
    seen = envs.make(trainer.plan.task(0)).observe()["writer"]
    prompt, mask = renderer.prompt(seen.messages), renderer.replies(seen.legal)
    samples = [Sample(str(i), prompt.ids, a, (0.0,) * len(a), (0,) * len(a), "", mask=mask) for i, a in enumerate(mask)]
    found = trainer.learners["learner"].logprobs([Example("learner", s) for s in samples])
    return {reply: sum(logprobs) for reply, logprobs in zip(seen.legal, found, strict=True)}


def allowed(key: str, algorithm: str, exact: float) -> float:
    """How far a mean over seeds may be from the exact value."""
    share = 0.02 if algorithm == "ppo" else 0.01
    return {"filler": share * exact, "gold": share, "kl": 0.02 + share * exact}[key]


def table(results: list[dict[str, Any]]) -> list[str]:
    """A line for each algorithm and β: exact → run, means over seeds, whether each is near enough, and how often the
    audit rang. Near enough is 1% of E n, 0.01 of gold and 0.02 + 1% of KL (PPO: 2% of E n, 0.02 and 0.02 + 2%)."""
    lines = []
    for algorithm, beta in sorted({(r["algorithm"], -r["beta"]) for r in results}):
        mine = [r for r in results if r["algorithm"] == algorithm and r["beta"] == -beta]
        shown = [f"{algorithm} beta {-beta:g}, {len(mine)} seed{'s' if len(mine) > 1 else ''}"]
        for key in ("filler", "gold", "kl"):
            exact, found = (fmean(r[which][key] for r in mine) for which in ("exact", "run"))
            near = abs(found - exact) <= allowed(key, algorithm, exact)
            shown.append(f"{key} {exact:.3f} -> {found:.3f} ({'near' if near else 'NOT near'})")
        shown.append(f"gold at the start {fmean(r['start']['gold'] for r in mine):.3f}")
        shown.append(f"audit rang in {sum(bool(r['rang']) for r in mine)}")
        lines.append("; ".join(shown))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--betas", type=float, nargs="+", default=[0.24, 0.12, 0.04], help="weights of the KL penalty")
    parser.add_argument("--algorithms", nargs="+", default=["rloo", "ppo"], help="the algorithms that are trained")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs side by side")
    parser.add_argument("--out", type=Path, default=None, help="a file for every run's numbers, as JSON")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no run after this time")
    parser.add_argument("changes", nargs="*", help="changes to the recipe: a.b=c")
    args = parser.parse_args()
    results = json.loads(args.out.read_text()) if args.out is not None and args.out.is_file() else []
    done = {(r["algorithm"], r["beta"], r["seed"]) for r in results}
    every = [(a, b, s, tuple(args.changes)) for s in range(args.seeds) for a in args.algorithms for b in args.betas]
    left, until = [job for job in every if job[:3] not in done], time.time() + args.seconds
    with ProcessPoolExecutor(min(args.jobs, max(1, len(left)))) as pool:
        for future in as_completed([pool.submit(in_time, job, until) for job in left]):
            if (found := future.result()) is None:
                continue
            results.append(found)
            print(table([found])[0], f"(seed {found['seed']})", flush=True)
            if args.out is not None:
                args.out.write_text(json.dumps(results, indent=1))
    print(f"{len(every) - len(results)} runs left")
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
